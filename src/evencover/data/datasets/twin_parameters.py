"""What makes each twin: class counts as published, and a latent space that was tuned."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TwinParameters:
    """What makes a twin: the published class counts, and a latent space that was tuned.

    Attributes
    ----------
    n_rows, n_classes
        The shape of the score file.
    count_quantiles
        Rows per class: least, quantiles 0.25, 0.5, 0.75 and 0.9, most.
    rarest_share
        Rows in the rarest 5% of the classes, relative to 5% of all rows.
    dimensions
        Of the latent space.
    separation
        How far class centres are from the origin, in units of a row's noise.
    group_size, group_share
        Classes come in groups of confusable ones of this size, and share so much of their
        centres' variance with their group.
    class_spread, class_skew
        How much the classes' noise differs (standard deviation of its logarithm), and how skewed.
    class_awareness
        The power of a class's noise by which its logits are flatter; 2 would be honest.
    confidence_spread
        How much classes differ in over-confidence, whatever their noise.
    row_spread, row_skew, row_awareness
        The same for the noise of the rows within a class.
    sharpness
        Factor of all logits; above 1 is over-confident.
    haze
        Weight of the fourth root of the odds: the long tail of small probabilities.
    prior
        Weight of the logarithm of the class counts in the logits.
    """

    n_rows: int
    n_classes: int
    count_quantiles: tuple[float, float, float, float, float, float]
    rarest_share: float
    dimensions: int
    separation: float
    group_size: float
    group_share: float
    class_spread: float
    class_skew: float
    class_awareness: float
    confidence_spread: float
    row_spread: float
    row_skew: float
    row_awareness: float
    sharpness: float
    haze: float
    prior: float = 0.0


TWINS: dict[str, TwinParameters] = {
    "imagenet": TwinParameters(
        n_rows=1_153_051,
        n_classes=1000,
        count_quantiles=(663, 1159, 1168, 1176, 1184, 1201),
        rarest_share=0.7905,
        dimensions=24,
        separation=5.9,
        group_size=11.8,
        group_share=0.12,
        class_spread=0.13,
        class_skew=0.285,
        class_awareness=0.664,
        confidence_spread=0.11,
        row_spread=0.342,
        row_skew=0.1,
        row_awareness=1.38,
        sharpness=1.07,
        haze=0.034,
    ),
    "cifar-100": TwinParameters(
        n_rows=30_000,
        n_classes=100,
        count_quantiles=(257, 290, 301.5, 310.25, 316.1, 330),
        rarest_share=0.904,
        dimensions=31,
        separation=2.98,
        group_size=4.19,
        group_share=0.626,
        class_spread=0.0868,
        class_skew=0.328,
        class_awareness=0.177,
        confidence_spread=0.0591,
        row_spread=0.395,
        row_skew=-0.166,
        row_awareness=1.44,
        sharpness=0.711,
        haze=0.000217,
    ),
    "places365": TwinParameters(
        n_rows=183_996,
        n_classes=365,
        count_quantiles=(300, 493, 508, 523, 538.6, 576),
        rarest_share=0.7687,
        dimensions=29,
        separation=3.95,
        group_size=8.83,
        group_share=0.427,
        class_spread=0.102,
        class_skew=0.142,
        class_awareness=0.667,
        confidence_spread=0.0318,
        row_spread=0.36,
        row_skew=-0.194,
        row_awareness=1.2,
        sharpness=0.926,
        haze=9.21e-05,
    ),
    "inaturalist": TwinParameters(
        n_rows=1_324_900,
        n_classes=633,
        count_quantiles=(250, 373, 697, 1822, 5099.4, 68838),
        rarest_share=0.1214,
        dimensions=21,
        separation=4.95,
        group_size=8.0,
        group_share=0.474,
        class_spread=0.194,
        class_skew=0.129,
        class_awareness=0.938,
        confidence_spread=0.142,
        row_spread=0.317,
        row_skew=-0.0594,
        row_awareness=1.19,
        sharpness=0.961,
        haze=0.00378,
        prior=0.651,
    ),
}
