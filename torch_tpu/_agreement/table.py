"""What the package knows of single operators of ATen, because PyTorch's schemas, Meta kernels and
dispatcher do not say it.

`tests/python/test_agreement.py` says which rows the installed PyTorch no longer needs.
"""

import functools
from typing import NamedTuple

KINDS = {
    # Results (results.py)
    "Convolved": "has no Meta kernel; its result lies as its image or its weight does",
    "ConvolvedBack": "has no Meta kernel; its results lie as the image or the weight does",
    "AsConvolved": "has fake results that lie by rows; they lie as the image or the weight does",
    "Reflected": "has no Meta kernel; it returns reflectors in columns, and their factors",
    "Normalized": "has no Meta kernel; its result lies as the image does",
    "Grouped": "multiplies matrices of any dtype that the CPU takes",
    "NormOfNone": "reduces dims that have elements where another has none",
    "GradientOfNone": "has an empty gradient where the loss is of nothing",
    "AsOnCuda": "is implemented with CUDA's results, so Meta is not asked about the CPU",
    "NarrowStatistics": "keeps statistics in the input's dtype unless its parameters are wider",
    "NoStatistics": "saves no statistics in evaluation",
    "NoSampleDim": "gives the loss of a lone sample no dims",
    "Promotes": "computes in the dtype that its operands are promoted to",
    "KeepsFormat": "keeps an image's channels last, and no other order of its dims",
    "Contiguous": "lays its results row by row, whatever its operands do",
    "LikeFirst": "lays its result as its first operand",
    "Gathers": "iterates over what it reads, without the dims that are indexed, and its indices",
    "FillsTarget": "fills an out= tensor of any sizes that has as many elements as the result",
    "WithNoise": "iterates over the noise and its first operand in training, and over its second "
    "and first else",
    "SecondFirst": "iterates over its second operand first",
    # Arguments (checks.py)
    "BoolOnCuda": "takes booleans on CUDA, which the CPU refuses",
    "OneDtype": "writes values of the dtype of what they are written into alone, untold by Meta",
    "ClassNumbers": "numbers classes in int64, in uint8 where it says so itself, and not in int32",
    "WholeFactor": "takes a fraction as a factor of integers, without what is behind the point",
    "NoDimsAreAll": "reduces all dims where it is given a list of none",
    "ComplexOnCuda": "takes complex numbers on CUDA, which the CPU refuses",
    "HalvesOnCuda": "takes complex numbers of two halves on CUDA, which the CPU refuses",
    "Held": "refuses a number that the dtype of what it makes does not hold",
    "Ordered": "refuses a range whose end is before its start, or is no number of the dtype",
    "WholeNumbers": "warns of bounds that the dtype does not tell from their neighbours",
    "NonNegative": "refuses a negative number",
    "Positive": "refuses a number that is not positive",
    "Probability": "refuses a number outside of 0 to 1",
    "ProperProbability": "refuses a number that is not between 0 and 1",
    "NarrowSummand": "refuses a summand that is larger than the product",
    "ApartFromSource": "refuses a target that meets its source or itself",
    "Overwrites": "takes no dtype from its target",
    # Kernels (glue/dispatch/register.cpp, _lent.py)
    "ByHand": "has a kernel of its own or PyTorch's, not its row's",
    "LentSparse": "has a kernel for the CPU's sparse tensors that serves any device",
    "DirectCoo": "has a kernel in torch_tpu/_sparse where LentSparse names others of its overloads",
    "DirectCsr": "has a kernel for compressed tensors in torch_tpu/_sparse, likewise",
    "DirectNested": "has a kernel for the CPU's nested tensors that does not serve any device",
    "LentDense": "has a kernel for the CPU's dense tensors that serves any device",
    "LentQuantised": "has a kernel for the CPU's quantised tensors that serves any device",
}
"""What an operator of each kind does on the CPU, and the package therefore heeds."""


class Row(NamedTuple):
    """Operators of one kind: overloads, such as "ldexp.Tensor".

    One that has a row in the op table stands for its in-place and out= forms, too. Of the kinds
    Lent*, and of DirectNested, they stand for all overloads of that name, in-place ones included.
    """

    kind: str
    operators: str
    reason: str
    """Why it has to be known; the operator is the subject."""
    argument: str = ""
    """The one that the kind is about."""
    torch: str = "2.13"
    """The versions of PyTorch with which it was found so."""


NUMBERS_IN_NO_KEY = "has numbers that are in no key, so that Meta is not asked about them"

ROWS = (
    Row(
        "Convolved",
        "convolution_overrideable",
        "is for other backends, and throws on the meta device",
    ),
    Row(
        "ConvolvedBack",
        "convolution_backward_overrideable",
        "is for other backends, and throws on the meta device",
    ),
    Row(
        "AsConvolved",
        "convolution convolution_backward",
        "is what PyTorch's fake tensors know of, for backends of its own",
    ),
    Row("Reflected", "geqrf", "has a kernel for the CPU and CUDA alone"),
    Row(
        "Normalized",
        "batch_norm_elemt batch_norm_backward_elemt",
        "is for other backends, and has no kernel for the CPU",
    ),
    Row(
        "NormOfNone", "linalg_vector_norm", "has a Meta kernel that finds dims from the last empty"
    ),
    Row(
        "GradientOfNone",
        "mse_loss_backward smooth_l1_loss_backward huber_loss_backward",
        "has a Meta kernel that divides by the number of elements",
    ),
    Row("Grouped", "_grouped_mm", "has a Meta kernel that takes bfloat16 alone"),
    Row(
        "AsOnCuda",
        "_embedding_bag _embedding_bag_forward_only",
        "keeps for gradients what has other shapes on CUDA",
    ),
    Row("AsOnCuda", "histc", "counts integers on CUDA alone, in their own dtype"),
    Row("BoolOnCuda", "abs", "has a kernel for booleans on CUDA alone"),
    Row("ComplexOnCuda", "nansum", "has a kernel for complex numbers on CUDA alone"),
    Row("WholeFactor", "index_add", "has a Meta kernel that refuses it", argument="alpha"),
    Row("NoDimsAreAll", "nansum", "has a Meta kernel that reduces none of them", argument="dim"),
    Row(
        "HalvesOnCuda",
        "sum sum.dim_IntList mean mean.dim prod prod.dim_int div.Tensor",
        "has a kernel for complex numbers of two halves on CUDA alone",
    ),
    Row(
        "NarrowStatistics",
        "native_layer_norm native_batch_norm _native_batch_norm_legit.no_stats "
        "_native_batch_norm_legit_no_training _native_batch_norm_legit_functional",
        "has a Meta kernel that keeps statistics in f32 for every device but the CPU",
    ),
    Row(
        "NoStatistics",
        "native_batch_norm _native_batch_norm_legit_functional",
        "has a Meta kernel that saves statistics in evaluation, too",
        argument="training",
    ),
    Row(
        "NoStatistics",
        "_native_batch_norm_legit_no_training",
        "has a Meta kernel that saves statistics",
    ),
    Row(
        "NoSampleDim",
        "multilabel_margin_loss_forward",
        "has a Meta kernel that gives a lone sample's loss one dim",
    ),
    Row("Promotes", "ldexp.Tensor", "multiplies by powers of two that have a dtype of their own"),
    Row(
        "KeepsFormat",
        "channel_shuffle max_unpool2d native_batch_norm_backward reflection_pad3d "
        "reflection_pad2d_backward reflection_pad3d_backward replication_pad3d "
        "replication_pad2d_backward replication_pad3d_backward roll",
        "has a Meta kernel that forgets channels_last",
    ),
    Row(
        "KeepsFormat",
        "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit.no_stats "
        "_native_batch_norm_legit_no_training _native_batch_norm_legit_functional",
        "has a Meta kernel that keeps other orders of dims as well",
    ),
    Row(
        "ClassNumbers",
        "nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward",
        "has a Meta kernel that gathers, which takes int32 and int64",
    ),
    Row("OneDtype", "index_put _index_put_impl _unsafe_index_put", "has a Meta kernel that casts"),
    Row("Contiguous", "pow.Scalar log_sigmoid_forward", "makes its result without an iterator"),
    Row("Contiguous", "masked_fill.Scalar masked_fill.Tensor", "has a Meta kernel that is where's"),
    Row("LikeFirst", "log_sigmoid_backward", "makes its result without an iterator"),
    Row("LikeFirst", "hardtanh nan_to_num deg2rad rad2deg", "makes its result first"),
    Row(
        "Contiguous",
        "tril triu isin.Tensor_Tensor isin.Tensor_Scalar normal.float_Tensor normal.Tensor_Tensor",
        "makes its result first",
    ),
    Row("Gathers", "index.Tensor _unsafe_index.Tensor", "has a Meta kernel without an iterator"),
    Row(
        "Contiguous",
        "mse_loss_backward smooth_l1_loss_backward huber_loss_backward",
        "makes its result first",
    ),
    Row(
        "FillsTarget",
        "arange arange.start_step linspace linspace.Tensor_Tensor "
        "linspace.Tensor_Scalar linspace.Scalar_Tensor logspace logspace.Tensor_Tensor "
        "logspace.Tensor_Scalar logspace.Scalar_Tensor",
        "has a Meta kernel that makes its target a line",
    ),
    Row(
        "WithNoise",
        "rrelu_with_noise_backward",
        "is computed by other operators",
        argument="training",
    ),
    Row(
        "SecondFirst",
        "rsub.Tensor leaky_relu_backward threshold_backward",
        "hands its operands to the iterator in another order than its schema's",
    ),
    Row(
        "Held",
        "fill.Scalar masked_fill.Scalar index_fill.int_Scalar scatter.value threshold "
        "constant_pad_nd",
        NUMBERS_IN_NO_KEY,
        argument="value",
    ),
    Row("Held", "full full_like new_full", NUMBERS_IN_NO_KEY, argument="fill_value"),
    Row("Held", "scalar_tensor", NUMBERS_IN_NO_KEY, argument="s"),
    Row("Ordered", "uniform", NUMBERS_IN_NO_KEY, argument="from"),
    Row("WholeNumbers", "random.from random.to", "has a Meta kernel that minds no bounds"),
    Row(
        "NonNegative",
        "normal_functional normal.float_float normal.Tensor_float",
        NUMBERS_IN_NO_KEY,
        argument="std",
    ),
    Row("Positive", "log_normal", NUMBERS_IN_NO_KEY, argument="std"),
    Row("Positive", "exponential", NUMBERS_IN_NO_KEY, argument="lambd"),
    Row("Positive", "cauchy", NUMBERS_IN_NO_KEY, argument="sigma"),
    Row("ProperProbability", "geometric", NUMBERS_IN_NO_KEY, argument="p"),
    Row("Probability", "bernoulli.p", NUMBERS_IN_NO_KEY, argument="p"),
    Row(
        "NarrowSummand",
        "addmm addmv",
        "has a Meta kernel that takes a summand as large as it likes",
    ),
    Row("ApartFromSource", "copy", "takes any target on the meta device"),
    Row("Overwrites", "copy_", "casts between dtypes that PyTorch does not promote"),
    Row(
        "ByHand",
        "native_batch_norm native_batch_norm.out",
        "has a schema that does not say that it updates the running statistics",
    ),
    Row(
        "ByHand",
        "copy_",
        "is composed by PyTorch, which minds devices and leaves the rest to _copy_from",
    ),
    Row(
        "LentSparse",
        "_coalesced_ _conj_physical _dimI _dimV _indices _nnz _sparse_broadcast_to "
        "_sparse_coo_tensor_with_dims _sparse_coo_tensor_with_dims_and_tensors _to_dense "
        "_to_sparse _to_sparse_bsc _to_sparse_bsr _to_sparse_csc _to_sparse_csr _values abs add "
        "addmm angle any asin asinh atan atanh cat ccol_indices ceil clone col_indices "
        "conj_physical copy copy_sparse_to_sparse crow_indices deg2rad dense_dim div empty "
        "empty_like erf erfinv expm1 fill floor floor_divide frac indices is_coalesced isinf "
        "isnan isneginf isposinf log1p mm mul mv nan_to_num narrow_copy native_norm neg norm "
        "normal permute pow rad2deg relu resize_as_sparse round row_indices select select_copy "
        "sgn sign signbit sin sinh sparse_dim sparse_mask sparse_resize sparse_resize_and_clear "
        "sqrt sub sum tan tanh threshold_backward trunc unsqueeze values view_as_complex "
        "view_as_real zero zeros",
        "never looks at memory itself: its kernel is made of dense operators",
    ),
    Row("DirectCoo", "add.out addmm addmm.out addmm_ mul.out sparse_mask", "looks at memory"),
    Row(
        "DirectCsr",
        "_to_sparse _to_sparse_bsc _to_sparse_bsr _to_sparse_csc _to_sparse_csr add.out addmm.out "
        "sparse_mask",
        "looks at memory",
    ),
    Row(
        "DirectNested",
        "_fused_sdp_choice _native_multi_head_attention _nested_sum_backward "
        "_nested_tensor_softmax_with_shape _transform_bias_rescale_qkv "
        "_transformer_encoder_layer_fwd _pin_memory is_pinned matmul native_layer_norm "
        "native_layer_norm_backward sum to_padded_tensor",
        "looks at memory, or chooses by the device",
    ),
    Row(
        "LentDense",
        "_to_sparse _to_sparse_bsc _to_sparse_bsr _to_sparse_csc _to_sparse_csr",
        "makes a sparse tensor of dense operators",
    ),
    Row(
        "LentDense",
        "_nested_tensor_from_mask _nested_tensor_from_mask_left_aligned _nested_view_from_buffer",
        "makes a nested tensor of dense operators",
    ),
    Row(
        "LentDense",
        "_empty_affine_quantized _empty_per_channel_affine_quantized",
        "refuses a dtype that is not quantised",
    ),
    Row(
        "LentQuantised",
        "_empty_affine_quantized _empty_per_channel_affine_quantized _reshape_alias as_strided "
        "clone empty empty_like empty_quantized empty_strided fill max min q_per_channel_axis "
        "q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point qscheme set squeeze "
        "unfold unsqueeze view",
        "minds sizes and scales, or is made of operators on the integers",
    ),
)


class Known(NamedTuple):
    """All that is known of one operator."""

    kinds: frozenset[str] = frozenset()
    argument: str = ""


@functools.cache
def _table() -> dict[str, Known]:
    table: dict[str, Known] = {}
    for row in ROWS:
        for name in row.operators.split():
            before = table.get(name, Known())
            table[name] = Known(before.kinds | {row.kind}, row.argument or before.argument)
    return table


def names(kinds: set[str]) -> set[str]:
    """Returns the operators of these kinds, as rows name them."""
    return {name for name, one in _table().items() if one.kinds & kinds}


def known(*names: str) -> Known:
    """Returns what is known of an operator by any of its names as rows have them."""
    found = [_table()[name] for name in names if name in _table()]
    kinds = frozenset[str]().union(*(one.kinds for one in found))
    return Known(kinds, next((one.argument for one in reversed(found) if one.argument), ""))
