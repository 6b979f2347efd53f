"""sentence-transformers: embeddings, similarity, training, a cross encoder; of random weights."""

import tempfile
from pathlib import Path

import torch
from case import case
from datasets import Dataset
from sentence_transformers import (
    CrossEncoder,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    losses,
    models,
)
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    BertTokenizer,
    set_seed,
)

WORDS = "the a cat dog sat ran on under mat tree sun rose set fell".split()
TEXTS = ["the cat sat on the mat", "a dog ran under a tree", "the sun rose", "a dog sat"]


def pretrained(folder: str, kind: type = BertModel, **options: object) -> str:
    set_seed(0)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    Path(folder, "vocab.txt").write_text("\n".join(vocabulary))
    BertTokenizer(f"{folder}/vocab.txt", model_max_length=32).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=32, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, **options,
    )  # fmt: skip
    kind(config).save_pretrained(folder)
    return folder


def sentences(**options: object) -> SentenceTransformer:
    with tempfile.TemporaryDirectory() as folder:
        words = models.Transformer(pretrained(folder))
    return SentenceTransformer(modules=[words, models.Pooling(32)], **options)


@case("encode, similarity, semantic_search")
def encoded() -> tuple[object, list[float]]:
    from sentence_transformers.util import semantic_search

    model = sentences()
    found = model.encode(TEXTS)
    near = model.similarity(found, found)
    tensors = model.encode(TEXTS, convert_to_tensor=True, normalize_embeddings=True)
    hits = semantic_search(tensors[:1], tensors, top_k=3)[0]
    numbers = [*found[0, :8], *near.flatten(), *[one["score"] for one in hits]]
    assert tensors.device.type == model.device.type
    return model.device, [*numbers, *[one["corpus_id"] for one in hits]]


@case("SentenceTransformerTrainer: MultipleNegativesRankingLoss")
def trained() -> tuple[object, list[float]]:
    model = sentences()
    data = Dataset.from_dict({"anchor": TEXTS * 4, "positive": [text[::-1] for text in TEXTS] * 4})
    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            folder, max_steps=6, per_device_train_batch_size=4, logging_steps=1, save_steps=6,
            report_to=[], disable_tqdm=True,
        )  # fmt: skip
        trainer = SentenceTransformerTrainer(
            model, arguments, data, loss=losses.MultipleNegativesRankingLoss(model)
        )
        trainer.train()
        model.save_pretrained(f"{folder}/kept")
        again = SentenceTransformer(f"{folder}/kept")
        assert again.device == model.device
        assert (again.encode(TEXTS) == model.encode(TEXTS)).all()
    steps = [one["loss"] for one in trainer.state.log_history if "loss" in one]
    return model.device, steps


@case("CrossEncoder: predict, rank")
def crossed() -> tuple[object, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        model = CrossEncoder(pretrained(folder, BertForSequenceClassification, num_labels=1))
    scores = model.predict([(TEXTS[0], text) for text in TEXTS])
    ranked = model.rank(TEXTS[0], TEXTS)
    return model.model.device, [*scores, *[one["score"] for one in ranked]]


@case("an explicit device='cpu' is the CPU")
def on_cpu() -> tuple[object, list[float]]:
    model = sentences(device="cpu")
    found = model.encode(TEXTS)
    assert model.device.type == "cpu"
    return "tpu is not taken" if hasattr(torch, "tpu") else model.device, found[0, :8]
