"""The estimators by name; importing this module loads all of them, and scikit-learn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.learn._gradient_logistic import PrivateGradientLogistic
from discreet.learn._id3 import PrivateID3Classifier
from discreet.learn._kmeans import PrivateKMeans
from discreet.learn._naive_bayes import PrivateNaiveBayes
from discreet.learn._pca import PrivatePCA
from discreet.learn._perceptron import PrivatePerceptron
from discreet.learn._ridge import PrivateRidge
from discreet.learn.classifier import PrivateClassifier
from discreet.learn.exact_svm import RegularizedSVM
from discreet.learn.large_margin import LargeMarginGaussianClassifier
from discreet.learn.logistic import PrivateLogisticRegression
from discreet.learn.noise_aware import NoiseAwareClassifier, NoiseAwareRidge
from discreet.learn.svm import PrivateSVM

if TYPE_CHECKING:
    from discreet.learn.base import Learner

METHODS: dict[str, type[Learner]] = {
    method.name: method
    for method in (
        PrivateClassifier,
        RegularizedSVM,
        PrivateLogisticRegression,
        PrivateSVM,
        LargeMarginGaussianClassifier,
        PrivateID3Classifier,
        PrivateNaiveBayes,
        PrivateRidge,
        PrivateGradientLogistic,
        PrivatePCA,
        PrivateKMeans,
        PrivatePerceptron,
        NoiseAwareClassifier,
        NoiseAwareRidge,
    )
}
