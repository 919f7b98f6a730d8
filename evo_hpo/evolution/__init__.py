"""Evolution: `space` where hyperparameters lie and how they move · `hyperparameters` who has which · `strategies` who survives"""
