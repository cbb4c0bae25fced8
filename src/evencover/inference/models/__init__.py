"""Trained classifiers, seen alike: something is prepared by workers, and becomes logits."""
