"""Episodes: `runner` plays them · `sampler` what an engine is · `fused` the one in this process · `pool` · `expert`"""
