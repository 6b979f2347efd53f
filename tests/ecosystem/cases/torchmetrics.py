"""torchmetrics: classification, regression, images, text, retrieval; collected and saved."""

from collections.abc import Iterator

import torch
import torchmetrics as tm
from case import case
from torchmetrics.classification import MulticlassCalibrationError

DEVICE = torch.accelerator.current_accelerator() or "cpu"


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def flat(found: dict[str, torch.Tensor]) -> Iterator[float]:
    for name in sorted(found):
        yield from found[name].float().flatten().tolist()


def batches(metrics: tm.MetricCollection, *all_given: torch.Tensor) -> tuple[object, list[float]]:
    metrics = metrics.to(DEVICE)
    last = []
    for given in zip(*[one.chunk(2) for one in all_given], strict=True):
        last = list(flat(metrics(*given)))
    found = metrics.compute()
    metrics.reset()
    return next(iter(found.values())).device, [*last, *flat(found)]


@case("classification, 12 metrics, 5 classes")
def classes() -> tuple[object, list[float]]:
    scores = draw(64, 5).softmax(1)
    wanted = (draw(64, seed=1) * 5).long()
    options = {"task": "multiclass", "num_classes": 5}
    names = ["Accuracy", "AUROC", "AveragePrecision", "CohenKappa", "ConfusionMatrix", "F1Score"]
    names += ["JaccardIndex", "MatthewsCorrCoef", "Precision", "Recall", "Specificity"]
    metrics = {name: getattr(tm, name)(**options) for name in names}
    metrics["Calibration"] = MulticlassCalibrationError(num_classes=5)
    return batches(tm.MetricCollection(metrics), scores, wanted)


@case("classification, yes or no: curves and thresholds")
def binary() -> tuple[object, list[float]]:
    scores, wanted = draw(64), (draw(64, seed=1) > 0.5).long()
    metrics = [tm.AUROC(task="binary"), tm.Accuracy(task="binary"), tm.F1Score(task="binary")]
    device, found = batches(tm.MetricCollection(metrics), scores, wanted)
    for thresholds in (None, 11):
        curve = tm.PrecisionRecallCurve(task="binary", thresholds=thresholds).to(DEVICE)
        curve.update(scores, wanted)
        found += [float(one.sum()) for one in curve.compute()]
    return device, found


@case("regression, 9 metrics")
def regression() -> tuple[object, list[float]]:
    names = ["ExplainedVariance", "MeanAbsoluteError", "MeanAbsolutePercentageError"]
    names += ["MeanSquaredError", "MeanSquaredLogError", "PearsonCorrCoef", "R2Score"]
    names += ["SpearmanCorrCoef", "KendallRankCorrCoef"]
    metrics = tm.MetricCollection({name: getattr(tm.regression, name)() for name in names})
    x = draw(64)
    return batches(metrics, x + 0.3 * draw(64, seed=1), x)


@case("images: PSNR, SSIM, multi-scale SSIM, UQI, total variation")
def images() -> tuple[object, list[float]]:
    x = draw(2, 3, 192, 192)
    y = (x + 0.1 * draw(2, 3, 192, 192, seed=1)).clamp(0, 1)
    parts = tm.image
    metrics = [
        parts.PeakSignalNoiseRatio(data_range=1.0),
        parts.StructuralSimilarityIndexMeasure(data_range=1.0),
        parts.MultiScaleStructuralSimilarityIndexMeasure(data_range=1.0),
        parts.UniversalImageQualityIndex(),
    ]
    device, found = batches(tm.MetricCollection(metrics), x, y)
    variation = parts.TotalVariation().to(DEVICE)
    return device, [*found, float(variation(x)) / 1e4]


@case("text and retrieval: perplexity, NDCG, MRR, MAP")
def ranked() -> tuple[object, list[float]]:
    perplexity = tm.text.Perplexity(ignore_index=0).to(DEVICE)
    value = perplexity(draw(4, 8, 16).log(), (draw(4, 8, seed=1) * 16).long())
    found = [float(value)]
    groups = torch.arange(4, device=DEVICE).repeat_interleave(8)
    for name in ("RetrievalNormalizedDCG", "RetrievalMRR", "RetrievalMAP"):
        metric = getattr(tm.retrieval, name)().to(DEVICE)
        found.append(float(metric(draw(32), draw(32, seed=1) > 0.5, indexes=groups)))
    return value.device, found


@case("states: saved, loaded, running, added up")
def states() -> tuple[object, list[float]]:
    first = tm.MeanMetric().to(DEVICE)
    first.persistent(True)
    first.update(draw(8))
    again = tm.MeanMetric().to(DEVICE)
    again.persistent(True)
    again.load_state_dict(first.state_dict())
    both = (tm.SumMetric().to(DEVICE) + first).to(DEVICE)
    both.update(draw(4, seed=1))
    running = tm.wrappers.Running(tm.SumMetric(), window=2).to(DEVICE)
    for i in range(4):
        running.update(draw(3, seed=i))
    return first.compute().device, [again.compute(), both.compute(), running.compute()]
