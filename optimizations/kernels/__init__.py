"""Triton kernels of the decode step at batch 1: 1 to 9 tokens, bf16 weights, fp32 accumulation.

Each module is a family: its kernels, and functions that take and give plain tensors. Importing a
module needs triton; nothing here is imported before a pass that uses it is on.
"""
