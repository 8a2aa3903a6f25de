"""The model's arithmetic as plain functions of tensors: what layers compute, and kernels must.

Shapes use these letters: T tokens in order, H heads, K and V the sizes of a key's and a value's
head, C = H * (2 K + V) channels, W the width of the convolution, D hidden size, R rank of the
latents, P size of a rotated part, S positions in a cache, E experts, G groups of them, N chosen
for a token, F width of an expert. Sources are named in each module. Inputs may have any floating
type; what is said to be fp32 is computed in it, and nothing is rounded in between.
"""
