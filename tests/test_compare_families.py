"""Families of kernels: what a name keeps, and what only says how it was instantiated."""

from __future__ import annotations

import time

import pytest

from bubblescope.compare.families import family


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        # Return type, template arguments and parameters go; namespaces stay.
        ("void a::b<4, at::f<int> >(int, float*)", "a::b"),
        ("a::build(long*, int)", "a::build"),
        ("void at::(anonymous namespace)::cat<1, 2>(int)", "at::cat"),
        ("void (anonymous namespace)::index<int>(int)", "index"),
        (
            "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, 6>(int)",
            "internal::gemvx::kernel",
        ),
        ("void v<4, f(a&)::{lambda()#2}::operator()() const::{lambda(int)#1}>(int)", "v"),
        ("void s<op::operator()<x>(y)::g>(int)", "s"),
        ("void s<a::operator< <int>, 3>(int)", "s"),
        # CUTLASS's entry points stand for what they run.
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_tn_align1>(x::Params)",
            "cutlass_simt_sgemm_tn",
        ),
        (
            "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<a<b>, 3>, 7>(p)",
            "cutlass::gemm::kernel::GemmUniversal",
        ),
        # Tile shapes, architectures that are numbers, stages and alignments of generated names.
        ("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT", "nvjet_sm90_tst_v_bz_splitK_TNT"),
        (
            "sm80_xmma_gemm_f32_nn_n_tilesize32x32x8_stage3_ffma_aligna4_kernel",
            "sm80_xmma_gemm_f32_nn_n_ffma_kernel",
        ),
        (
            "ampere_fp16_s16816gemm_64x64_sliced1x2_ldg8_stages_64x6_tn",
            "ampere_fp16_s16816gemm_ldg8_tn",
        ),
        ("Cijk_Ailk_Bjlk_SB_Bias_MT64x16x16_MI16x16x1_SN_LDSB0", "Cijk_Ailk_Bjlk_SB_Bias"),
        # Triton: the number that Inductor appends, argument specialisations, hashes.
        ("triton_poi_fused_add_mul_12", "triton_poi_fused_add_mul"),
        ("_attn_fwd_0d1d2de3c", "_attn_fwd"),
        ("matmul_kernel_3fa9c01b77de", "matmul_kernel"),
        # Handwritten numbers mean something.
        ("_fwd_kernel_stage2", "_fwd_kernel_stage2"),
        ("memcpy32_post", "memcpy32_post"),
        ("conv_3d_kernel", "conv_3d_kernel"),
        ("kda.delta rule: mul", "kda.delta rule: mul"),
        ("_ZN7ck_tile6kentryILi1EE_64x64", "_ZN7ck_tile6kentryILi1EE_64x64"),
        # Nothing is left of some: they keep their names.
        ("128x64", "128x64"),
        ("", ""),
        ("void ", "void"),
        ("<<<", "<<<"),
    ],
)
def test_family(name: str, kept: str) -> None:
    assert family(name) == kept


def test_names_are_untrusted_and_long() -> None:
    began = time.monotonic()
    for piece in ("1", "0d", "<", "(", ">", "a<", "_1", "operator<", "::"):
        family(piece * 200_000 + "!")
    assert time.monotonic() - began < 5
