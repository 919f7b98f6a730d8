"""Learning: `scoring` episodes · `batch` of rows · `learner` one update · `optimizer` · `diagnostics`"""
