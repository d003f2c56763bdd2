"""What people and blind baselines find wrong with finished questions."""
