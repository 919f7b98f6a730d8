"""Algorithms: what to learn from a batch. Pure tensor functions.

`core` the tables · `advantages` credit · `ratios` grain of the policy ratio · `objectives` surrogates · `aggregation`
token losses to one number · `kl` · `filters` · `critic` · `policy_gradient` puts them together · `supervised` SFT
· `preference` DPO · `scorers` reward and progress models
"""
