/* The op table: what the verifier knows of each op. */
#include "hlo/internal.h"

#include <assert.h>

#define CB TT_CLS_B
#define CS TT_CLS_S
#define CI TT_CLS_I
#define CF TT_CLS_F
#define CC TT_CLS_C
#define ANY TT_CLS_ANY
#define UNARY(op, cls) [TT_HLO_##op] = {"stablehlo." #op, 1, 1, {cls, 0, 0}, 0}
#define BINARY(op, cls) [TT_HLO_##op] = {"stablehlo." #op, 2, 2, {cls, cls, 0}, 0}
#define CHLO(count, op, cls) [TT_HLO_##op] = {"chlo." #op, count, count, {cls, cls, 0}, 0}
#define OP(op, min, max, first, second, rest, regions)                                             \
  [TT_OPCODE_##op] = {"stablehlo." #op, min, max, {first, second, rest}, regions}

static const tt_op_info infos[TT_OPCODE_COUNT] = {
    [TT_HLO_abs] = {"stablehlo.abs", 1, 1, {CS | CF | CC, 0, 0}, 0},
    UNARY(cbrt, CF | CC),
    UNARY(ceil, CF),
    UNARY(cosine, CF | CC),
    UNARY(count_leading_zeros, CI),
    UNARY(exponential, CF | CC),
    UNARY(exponential_minus_one, CF | CC),
    UNARY(floor, CF),
    UNARY(log, CF | CC),
    UNARY(log_plus_one, CF | CC),
    UNARY(logistic, CF | CC),
    UNARY(negate, CI | CF | CC),
    UNARY(not, CB | CI),
    UNARY(popcnt, CI),
    UNARY(round_nearest_afz, CF),
    UNARY(round_nearest_even, CF),
    UNARY(rsqrt, CF | CC),
    UNARY(sign, CS | CF | CC),
    UNARY(sine, CF | CC),
    UNARY(sqrt, CF | CC),
    UNARY(tan, CF | CC),
    UNARY(tanh, CF | CC),
    BINARY(add, ANY),
    BINARY(and, CB | CI),
    BINARY(atan2, CF | CC),
    BINARY(divide, CI | CF | CC),
    BINARY(maximum, CB | CI | CF),
    BINARY(minimum, CB | CI | CF),
    BINARY(multiply, ANY),
    BINARY(or, CB | CI),
    BINARY(power, CI | CF | CC),
    BINARY(remainder, CI | CF),
    BINARY(shift_left, CI),
    BINARY(shift_right_arithmetic, CI),
    BINARY(shift_right_logical, CI),
    BINARY(subtract, CI | CF | CC),
    BINARY(xor, CB | CI),
    /* operands, op, classes */
    CHLO(1, acos, CF | CC),
    CHLO(1, acosh, CF | CC),
    CHLO(1, asin, CF | CC),
    CHLO(1, asinh, CF | CC),
    CHLO(1, atan, CF | CC),
    CHLO(1, atanh, CF | CC),
    CHLO(1, cosh, CF | CC),
    CHLO(1, sinh, CF | CC),
    CHLO(1, bessel_i1e, CF),
    CHLO(1, digamma, CF),
    CHLO(1, erf, CF),
    CHLO(1, erf_inv, CF),
    CHLO(1, erfc, CF),
    CHLO(1, lgamma, CF),
    CHLO(2, next_after, CF),
    CHLO(2, zeta, CF),
    /* op, operands: fewest, most (-1: any), classes of the first, second, later; regions */
    OP(compare, 2, 2, ANY, ANY, 0, 0),
    OP(select, 3, 3, CB, ANY, ANY, 0),
    OP(clamp, 3, 3, CB | CI | CF, CB | CI | CF, CB | CI | CF, 0),
    OP(is_finite, 1, 1, CF, 0, 0, 0),
    OP(convert, 1, 1, ANY, 0, 0, 0),
    OP(bitcast_convert, 1, 1, CI | CF, 0, 0, 0),
    OP(complex, 2, 2, CF, CF, 0, 0),
    OP(real, 1, 1, CC, 0, 0, 0),
    OP(imag, 1, 1, CC, 0, 0, 0),
    OP(reduce_precision, 1, 1, CF, 0, 0, 0),
    OP(optimization_barrier, 1, 1, ANY, 0, 0, 0),
    OP(constant, 0, 0, 0, 0, 0, 0),
    OP(iota, 0, 0, 0, 0, 0, 0),
    OP(reshape, 1, 1, ANY, 0, 0, 0),
    OP(transpose, 1, 1, ANY, 0, 0, 0),
    OP(broadcast_in_dim, 1, 1, ANY, 0, 0, 0),
    OP(slice, 1, 1, ANY, 0, 0, 0),
    OP(dynamic_slice, 1, -1, ANY, CI, CI, 0),
    OP(dynamic_update_slice, 2, -1, ANY, ANY, CI, 0),
    OP(concatenate, 1, -1, ANY, ANY, ANY, 0),
    OP(pad, 2, 2, ANY, ANY, 0, 0),
    OP(reverse, 1, 1, ANY, 0, 0, 0),
    OP(reduce, 2, -1, ANY, ANY, ANY, 1),
    OP(reduce_window, 2, -1, ANY, ANY, ANY, 1),
    OP(select_and_scatter, 3, 3, CI | CF, CI | CF, CI | CF, 2),
    OP(dot_general, 2, 2, ANY, ANY, 0, 0),
    OP(convolution, 2, 2, ANY, ANY, 0, 0),
    OP(cholesky, 1, 1, CF | CC, 0, 0, 0),
    OP(triangular_solve, 2, 2, CF | CC, CF | CC, 0, 0),
    OP(fft, 1, 1, CF | CC, 0, 0, 0),
    OP(gather, 2, 2, ANY, CI, 0, 0),
    OP(scatter, 3, 3, ANY, CI, ANY, 1),
    OP(sort, 1, -1, ANY, ANY, ANY, 1),
    OP(while, 0, -1, ANY, ANY, ANY, 2),
    OP(if, 1, 1, CB, 0, 0, 2),
    OP(custom_call, 0, -1, ANY, ANY, ANY, 0),
    OP(all_reduce, 1, 1, CI | CF | CC, 0, 0, 1),
    OP(all_gather, 1, 1, ANY, 0, 0, 0),
    OP(reduce_scatter, 1, 1, CI | CF | CC, 0, 0, 1),
    OP(all_to_all, 1, 1, ANY, 0, 0, 0),
};

const tt_op_info *tt_hlo_info(int op) {
  assert(op >= 0 && op < TT_OPCODE_COUNT && infos[op].name);
  return &infos[op];
}
