"""Learning: `scoring` episodes to rewards · `batch` episodes to rows · `learner` one update · `optimizer` · `diagnostics`"""
