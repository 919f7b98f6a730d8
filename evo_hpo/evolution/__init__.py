"""Evolution: `space` where values lie and move · `hyperparameters` who has which · `strategies` who survives"""
