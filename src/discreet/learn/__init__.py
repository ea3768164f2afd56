"""Estimators with the interface of scikit-learn, with and without a privacy promise.

``classifier`` is the one that is trained where none is named. It, ``_id3``, ``_naive_bayes``, ``_ridge``,
``_gradient_logistic``, ``_pca``, ``_kmeans`` and ``_perceptron`` are fitted to noisy sums, on the base of
``_sums_base``; ``logistic``, ``svm`` and ``large_margin`` perturb an objective or its minimizer, by
``perturbation``; ``noise_aware`` learns from a published table and its noise law; ``exact_svm`` is exact and
promises nothing. ``_quantiles`` and ``_statistical_queries`` answer single queries, and ``_closeness``
compares models. ``_scalers`` and ``pipelines`` are for learners inside pipelines of scikit-learn. ``METHODS``
maps the name of each estimator to its class. Names are loaded at first use, and scikit-learn with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.lazy_names import load_on_use

if TYPE_CHECKING:
    from discreet.learn._closeness import Closeness, local_constant, measure_closeness
    from discreet.learn._gradient_logistic import PrivateGradientLogistic
    from discreet.learn._id3 import PrivateID3Classifier
    from discreet.learn._kmeans import PrivateKMeans
    from discreet.learn._naive_bayes import PrivateNaiveBayes
    from discreet.learn._pca import PrivatePCA
    from discreet.learn._perceptron import PrivatePerceptron
    from discreet.learn._quantiles import Quantiles, private_quantiles
    from discreet.learn._ridge import PrivateRidge
    from discreet.learn._scalers import PrivateScaler, PublicScaler
    from discreet.learn._statistical_queries import Statistic, StatisticalQueries
    from discreet.learn.base import Learner
    from discreet.learn.classifier import PrivateClassifier
    from discreet.learn.exact_svm import Certificate, RegularizedSVM
    from discreet.learn.large_margin import LargeMarginGaussianClassifier
    from discreet.learn.logistic import PrivateLogisticRegression
    from discreet.learn.methods import METHODS
    from discreet.learn.noise_aware import NoiseAwareClassifier, NoiseAwareRidge
    from discreet.learn.pipelines.private_pipeline import PrivatePipeline, check_pipeline, private_pipeline
    from discreet.learn.svm import PrivateSVM


__all__ = [
    "METHODS",
    "Certificate",
    "Closeness",
    "LargeMarginGaussianClassifier",
    "Learner",
    "NoiseAwareClassifier",
    "NoiseAwareRidge",
    "PrivateClassifier",
    "PrivateGradientLogistic",
    "PrivateID3Classifier",
    "PrivateKMeans",
    "PrivateLogisticRegression",
    "PrivateNaiveBayes",
    "PrivatePCA",
    "PrivatePerceptron",
    "PrivatePipeline",
    "PrivateRidge",
    "PrivateSVM",
    "PrivateScaler",
    "PublicScaler",
    "Quantiles",
    "RegularizedSVM",
    "Statistic",
    "StatisticalQueries",
    "check_pipeline",
    "local_constant",
    "measure_closeness",
    "private_pipeline",
    "private_quantiles",
]

__getattr__ = load_on_use(
    __name__,
    {
        "_closeness": ("Closeness", "local_constant", "measure_closeness"),
        "_gradient_logistic": ("PrivateGradientLogistic",),
        "_id3": ("PrivateID3Classifier",),
        "_kmeans": ("PrivateKMeans",),
        "_naive_bayes": ("PrivateNaiveBayes",),
        "_pca": ("PrivatePCA",),
        "_perceptron": ("PrivatePerceptron",),
        "_quantiles": ("Quantiles", "private_quantiles"),
        "_ridge": ("PrivateRidge",),
        "_scalers": ("PrivateScaler", "PublicScaler"),
        "_statistical_queries": ("Statistic", "StatisticalQueries"),
        "base": ("Learner",),
        "classifier": ("PrivateClassifier",),
        "exact_svm": ("Certificate", "RegularizedSVM"),
        "large_margin": ("LargeMarginGaussianClassifier",),
        "logistic": ("PrivateLogisticRegression",),
        "methods": ("METHODS",),
        "noise_aware": ("NoiseAwareClassifier", "NoiseAwareRidge"),
        "pipelines.private_pipeline": ("PrivatePipeline", "check_pipeline", "private_pipeline"),
        "svm": ("PrivateSVM",),
    },
)
