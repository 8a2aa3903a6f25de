from __future__ import annotations

import pytest

from bubblescope.kernels.names import function, short

LAMBDA = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::compare_scalar_kernel<int>"
    "(at::TensorIteratorBase&, at::native::(anonymous namespace)::OpType, int)::{lambda(int)#1}, "
    "std::array<char*, 2ul> >(int, at::native::compare_scalar_kernel<int>(at::TensorIteratorBase&)"
    "::{lambda(int)#1}, std::array<char*, 2ul>)"
)
GEMV = (
    "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, false>"
    "(cublasGemvParamsEx<int>)"
)


@pytest.mark.parametrize(
    ("name", "shown", "identifier"),
    [
        ("fused_moe_kernel", "fused_moe_kernel", "fused_moe_kernel"),
        ("nvjet_sm90_tst_64x8", "nvjet_sm90_tst_64x8", "nvjet_sm90_tst_64x8"),
        ("void gemm<4>(int)", "gemm<4>", "gemm"),
        ("void a::b::gemm<c::D<8u>, true>(e::F*, int)", "gemm<D<8u>, true>", "gemm"),
        ("sglang::speculative::build(long*, int)", "build", "build"),
        (
            "void (anonymous namespace)::softmax<float>(float*)",
            "softmax<float>",
            "softmax",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_x>(cutlass_80_x::Params)",
            "cutlass::Kernel2<cutlass_80_x>",
            "Kernel2",
        ),
        (GEMV, "gemvx::kernel<int, int, float, false>", "kernel"),
        (
            LAMBDA,
            "vectorized_elementwise_kernel<4, compare_scalar_kernel<int>"
            "(TensorIteratorBase&, OpType, int), array<char*, 2ul> >",
            "vectorized_elementwise_kernel",
        ),
        # No C++ names: the CPU stream thread's, and copies.
        ("moe.experts: index", "moe.experts: index", "moe.experts: index"),
        ("", "", ""),
    ],
)
def test_names(name: str, shown: str, identifier: str) -> None:
    assert short(name) == shown
    assert function(name) == identifier


@pytest.mark.parametrize("name", ["<", "(", "::", "void ", "a<b", "a>(", "operator()(int)"])
def test_odd_names_stay_names(name: str) -> None:
    assert short(name)
    assert function(name)
