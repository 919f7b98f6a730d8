"""Learning: `scoring` episodes · `batch` of rows · `learner` one update, `from_…` what · `pairs` · `optimizer` ·
`diagnostics`"""
