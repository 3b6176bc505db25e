"""K(G): GPflow kernels evaluated on Gram matrices, by dispatch on the kernel's type."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce, singledispatch

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow import covariances, kernels
from gpflow.inducing_variables import InducingPoints, InducingVariables

from ..linalg import transpose
from .blocks import FeatureBlocks, GramBlocks, InputBlocks


class KernelNotComputableFromGram(ValueError):  # noqa: N818  # the public name says it
    """The kernel's value at two points is not a function of their entries of a Gram matrix.

    >>> G = gpflow_dkp.gram.FeatureBlocks(X[:3], X.T)
    >>> try:
    ...     gpflow_dkp.gram.covariance(gpflow.kernels.Cosine(), G)
    ... except gpflow_dkp.gram.KernelNotComputableFromGram as error:
    ...     print(error)
    kernel Cosine (cosine) cannot act on a Gram matrix: its value is not a function of ...
    """

    def __init__(self, kernel: kernels.Kernel, reason: str) -> None:
        super().__init__(
            f"kernel {type(kernel).__name__} ({kernel.name}) cannot act on a Gram matrix: {reason}; "
            "use an isotropic stationary, Linear, Polynomial, ArcCosine, Constant or White kernel, a "
            "sum or product of them, or register yours with "
            f"@gram.covariance.register({type(kernel).__name__})"
        )


@check_shapes(
    "X: [batch..., N, D]",
    "return.tt: [lead..., N] if not full_cov",
    "return.tt: [lead..., N, N] if full_cov",
)
def from_inputs(
    kernel: kernels.Kernel,
    inducing_variable: InducingVariables | tf.Tensor,
    X: tf.Tensor,
    *,
    full_cov: bool = False,
) -> GramBlocks:
    """The first layer's covariance, of any GPflow kernel on inputs.

    :param kernel: any GPflow kernel, ARD and active dimensions included, `Composed` too.
    :param inducing_variable: Z [M, D], an array or a GPflow inducing variable.
    :param X: [N, D].
    :param full_cov: whether the data points' whole block is wanted.
    :returns: blocks with no sample dimension.

    >>> kernel = gpflow.kernels.SquaredExponential(lengthscales=[1.0, 2.0])
    >>> K = gpflow_dkp.gram.from_inputs(kernel, X[:3], X)
    >>> K.ii.shape, K.it.shape, K.tt.shape
    (TensorShape([3, 3]), TensorShape([3, 10]), TensorShape([10]))
    """
    return covariance(kernel, InputBlocks(inducing_variable, X, full_cov=full_cov))


def _of_inputs(kernel: kernels.Kernel, inputs: InputBlocks) -> GramBlocks:
    Z, X = inputs.inducing_variable, inputs.X
    if type(Z) is InducingPoints or not isinstance(Z, InducingVariables):
        Z = inputs.inducing
        if type(kernel) is kernels.ArcCosine:
            return _arc_cosine_of_inputs(kernel, inputs)
        if type(kernel) is kernels.RationalQuadratic:
            return _rational_quadratic_of_inputs(kernel, inputs)
        if type(kernel) in _REDUCTIONS:
            return _combined(kernel, [_of_inputs(child, inputs) for child in kernel.kernels])
        ii, it = (lambda: kernel(Z)), (lambda: kernel(Z, X))
    else:
        ii, it = (lambda: covariances.Kuu(Z, kernel)), (lambda: covariances.Kuf(Z, kernel, X))
    tt = kernel(X, full_cov=inputs.full_cov)
    return GramBlocks(ii, it, tt, full_cov=inputs.full_cov)


def _arc_cosine_of_inputs(kernel: kernels.ArcCosine, inputs: InputBlocks) -> GramBlocks:
    """GPflow's is NaN where rounding takes a cosine above 1, as it does on hundreds of features."""
    root = tf.sqrt(kernel.weight_variances)
    Z, X = (root * kernel.slice(points)[0] for points in (inputs.inducing, inputs.X))
    weighted = FeatureBlocks(Z, transpose(X), full_cov=inputs.full_cov)
    return _arc_cosine_of_weighted(kernel, _with_bias(kernel, weighted))


def _rational_quadratic_of_inputs(
    kernel: kernels.RationalQuadratic, inputs: InputBlocks
) -> GramBlocks:
    """In a third of the time of GPflow's power."""
    Z, X = (kernel.slice(points)[0] / kernel.lengthscales for points in (inputs.inducing, inputs.X))
    scaled = FeatureBlocks(Z, transpose(X), full_cov=inputs.full_cov)
    if scaled.full_cov:
        return scaled.jointly(lambda joint: _rational_quadratic_of_scaled(kernel, joint))
    return _rational_quadratic_of_scaled(kernel, scaled)


@singledispatch
def _dispatch(kernel: kernels.Kernel, gram: GramBlocks) -> GramBlocks:
    raise KernelNotComputableFromGram(kernel, "its value is not a function of inner products")


def covariance(kernel: kernels.Kernel, gram: GramBlocks) -> GramBlocks:
    """K(G): the kernel evaluated at points whose inner products are `gram`.

    Equals `kernel(F / sqrt(D))` on features F [., D] with G = F F^T / D. Register a kernel class of
    your own with `@covariance.register(MyKernel)`; a subclass of `IsotropicStationary` needs none.

    :param kernel: a GPflow kernel with scalar parameters and all dimensions active; any on `InputBlocks`.
    :param gram: G over M inducing and N data points, with or without samples; `InputBlocks` are inputs.
    :raises KernelNotComputableFromGram: when G does not determine the kernel.

    >>> kernel = gpflow.kernels.Matern52()
    >>> G = gpflow_dkp.gram.FeatureBlocks(X[:3], X.T)
    >>> np.allclose(gpflow_dkp.gram.covariance(kernel, G).it, kernel(X[:3], X))
    True
    """
    return of_structure(kernel, gram)


@singledispatch
def of_structure(kernel: kernels.Kernel, gram: GramBlocks) -> GramBlocks:
    """K(G) by what a kernel is made of; here that of one kernel of one output."""
    if isinstance(gram, InputBlocks):
        return _of_inputs(kernel, gram)
    _require_full_active_dims(kernel)
    _require_formula_of_registered_class(kernel)
    if gram.full_cov:
        return gram.jointly(lambda joint: _dispatch(kernel, joint))
    return _dispatch(kernel, gram)


@of_structure.register(kernels.MultioutputKernel)
def _mixed_outputs(kernel: kernels.MultioutputKernel, gram: GramBlocks) -> GramBlocks:
    raise KernelNotComputableFromGram(kernel, "it mixes outputs")


@of_structure.register(kernels.SharedIndependent)
def _shared(kernel: kernels.SharedIndependent, gram: GramBlocks) -> GramBlocks:
    return covariance(kernel.kernel, gram)


@of_structure.register(kernels.SeparateIndependent)
def _separate(kernel: kernels.SeparateIndependent, gram: GramBlocks) -> GramBlocks:
    """One covariance an output, [..., P, M, M] and so on."""
    children = [covariance(child, gram) for child in kernel.kernels]
    return GramBlocks(
        lambda: tf.stack([child.ii for child in children], -3),
        lambda: tf.stack([child.it for child in children], -3),
        tf.stack([child.tt for child in children], -3 if gram.full_cov else -2),
        full_cov=gram.full_cov,
    )


covariance.register = _dispatch.register  # type: ignore[attr-defined]  # as of singledispatch


@_dispatch.register(kernels.IsotropicStationary)
def _isotropic_stationary(kernel: kernels.IsotropicStationary, gram: GramBlocks) -> GramBlocks:
    _require_scalar(kernel, "lengthscales")
    inverse_square = tf.math.reciprocal(tf.square(tf.convert_to_tensor(kernel.lengthscales)))

    def of_it() -> tf.Tensor:
        squared = gram.squared_distances_it()
        return _of_squared_distance(kernel, squared * tf.cast(inverse_square, squared.dtype))

    return GramBlocks(
        lambda: _of_squared_distance(kernel, gram.squared_distances_ii() * inverse_square),
        of_it,
        _constant_diag(kernel.variance, gram),
        full_cov=False,
    )


def _of_squared_distance(kernel: kernels.IsotropicStationary, r2: tf.Tensor) -> tf.Tensor:
    """`K_r2` in the precision of the kernel's parameters, returned in that of `r2`."""
    return tf.cast(kernel.K_r2(tf.cast(r2, kernel.variance.dtype)), r2.dtype)


@_dispatch.register(kernels.SquaredExponential)
def _squared_exponential(kernel: kernels.SquaredExponential, gram: GramBlocks) -> GramBlocks:
    if type(kernel).K_r2 is not kernels.SquaredExponential.K_r2:
        return _isotropic_stationary(kernel, gram)
    _require_scalar(kernel, "lengthscales")
    scale = tf.math.reciprocal(tf.square(tf.convert_to_tensor(kernel.lengthscales)))
    variance = tf.convert_to_tensor(kernel.variance)
    log_variance = tf.math.log(variance)
    return GramBlocks(
        lambda: tf.exp(gram.scaled_distances_ii(scale, log_variance)),
        lambda: tf.exp(gram.scaled_distances_it(scale, log_variance)),
        _constant_diag(variance, gram),
        full_cov=False,
    )


@_dispatch.register(kernels.RationalQuadratic)
def _rational_quadratic(kernel: kernels.RationalQuadratic, gram: GramBlocks) -> GramBlocks:
    if type(kernel).K_r2 is not kernels.RationalQuadratic.K_r2:
        return _isotropic_stationary(kernel, gram)
    _require_scalar(kernel, "lengthscales")
    inverse_square = tf.math.reciprocal(tf.square(tf.convert_to_tensor(kernel.lengthscales)))
    return _rational_quadratic_of_scaled(kernel, gram, inverse_square)


def _rational_quadratic_of_scaled(
    kernel: kernels.RationalQuadratic, gram: GramBlocks, scale: tf.Tensor | float = 1.0
) -> GramBlocks:
    """v (1 + scale R / (2 alpha))^{-alpha} of squared distances R, by the logarithm of the power."""
    alpha, variance = tf.convert_to_tensor(kernel.alpha), tf.convert_to_tensor(kernel.variance)
    log_variance, zero = tf.math.log(variance), tf.zeros_like(alpha)

    def power(negative: tf.Tensor) -> tf.Tensor:
        exponent = tf.cast(alpha, negative.dtype) * tf.math.log(1.0 - negative)
        return tf.exp(tf.cast(log_variance, negative.dtype) - exponent)

    return GramBlocks(
        lambda: power(gram.scaled_distances_ii(scale / alpha, zero)),
        lambda: power(gram.scaled_distances_it(scale / alpha, zero)),
        _constant_diag(variance, gram),
        full_cov=False,
    )


@_dispatch.register(kernels.Linear)
def _linear(kernel: kernels.Linear, gram: GramBlocks) -> GramBlocks:
    _require_scalar(kernel, "variance")
    variance = tf.convert_to_tensor(kernel.variance)
    return _map(lambda block: _like(variance, block) * block, gram)


@_dispatch.register(kernels.Polynomial)
def _polynomial(kernel: kernels.Polynomial, gram: GramBlocks) -> GramBlocks:
    _require_scalar(kernel, "variance")
    variance, offset = tf.convert_to_tensor(kernel.variance), tf.convert_to_tensor(kernel.offset)

    def power(block: tf.Tensor) -> tf.Tensor:
        inner = _like(variance, block) * block + _like(offset, block)
        return inner ** _like(kernel.degree, block)

    return _map(power, gram)


@_dispatch.register(kernels.ArcCosine)
def _arc_cosine(kernel: kernels.ArcCosine, gram: GramBlocks) -> GramBlocks:
    _require_scalar(kernel, "weight_variances")
    weight_variance = tf.convert_to_tensor(kernel.weight_variances)
    weighted = _map(lambda block: _like(weight_variance, block) * block, gram)
    return _arc_cosine_of_weighted(kernel, _with_bias(kernel, weighted))


def _with_bias(kernel: kernels.ArcCosine, gram: GramBlocks) -> GramBlocks:
    bias_variance = tf.convert_to_tensor(kernel.bias_variance)
    return _map(lambda block: block + _like(bias_variance, block), gram)


def _arc_cosine_of_weighted(kernel: kernels.ArcCosine, weighted: GramBlocks) -> GramBlocks:
    """The kernel from the inner products of weights and bias."""
    if weighted.full_cov:
        return weighted.jointly(lambda joint: _arc_cosine_of_weighted(kernel, joint))
    norm_i, norm_t = tf.sqrt(weighted.ii_diag), tf.sqrt(weighted.tt)
    variance = tf.convert_to_tensor(kernel.variance)

    def of(inner: tf.Tensor, norms: tf.Tensor) -> tf.Tensor:
        return _like(variance, inner) / math.pi * _ANGULAR[kernel.order](inner, norms)

    def block(inner: tf.Tensor, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        norms = tf.cast(left, inner.dtype)[..., :, None] * tf.cast(right, inner.dtype)[..., None, :]
        return of(inner, norms)

    def diagonal(squared_norms: tf.Tensor) -> tf.Tensor:
        return of(squared_norms, squared_norms)

    return GramBlocks(
        lambda: tf.linalg.set_diag(block(weighted.ii, norm_i, norm_i), diagonal(weighted.ii_diag)),
        lambda: block(weighted.it, norm_i, norm_t),
        diagonal(weighted.tt),
        full_cov=False,
    )


# |x|^n |y|^n J_n(theta) of [Cho & Saul 2009] as functions of inner products x^T y and products of norms
# |x| |y|, [...] each: values without a quotient, and gradients that are finite at theta = 0, where arccos has
# an infinite one. TensorFlow's arccos takes ten times as long as its arctangent in double precision.

Gradients = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


@tf.custom_gradient
def _sine(inner: tf.Tensor, norms: tf.Tensor) -> tuple[tf.Tensor, Gradients]:
    """|x| |y| sin(theta). Its gradient diverges where x and y are parallel and is taken for 0 there."""
    sine = tf.sqrt(tf.maximum((norms - inner) * (norms + inner), 0.0))

    def gradients(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        quotient = tf.math.divide_no_nan(upstream, _sine(inner, norms))
        return -quotient * inner, quotient * norms

    return sine, gradients


@tf.custom_gradient
def _angular_0(inner: tf.Tensor, norms: tf.Tensor) -> tuple[tf.Tensor, Gradients]:
    """pi - theta. Its gradient diverges where x and y are parallel and is taken for 0 there."""

    def gradients(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        quotient = tf.math.divide_no_nan(upstream, _sine(inner, norms))
        return quotient, -quotient * inner / norms

    return tf.atan2(_sine(inner, norms), -inner), gradients


@tf.custom_gradient
def _angular_1(inner: tf.Tensor, norms: tf.Tensor) -> tuple[tf.Tensor, Gradients]:
    """|x| |y| (sin(theta) + (pi - theta) cos(theta))."""

    def gradients(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return upstream * _angular_0(inner, norms), upstream * _sine(inner, norms) / norms

    return _sine(inner, norms) + _angular_0(inner, norms) * inner, gradients


@tf.custom_gradient
def _angular_2(inner: tf.Tensor, norms: tf.Tensor) -> tuple[tf.Tensor, Gradients]:
    """|x|^2 |y|^2 (3 sin(theta) cos(theta) + (pi - theta) (1 + 2 cos(theta)^2))."""
    squares = tf.square(norms) + 2.0 * tf.square(inner)

    def gradients(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        of_norms = _sine(inner, norms) * inner / norms + _angular_0(inner, norms) * norms
        return 4.0 * upstream * _angular_1(inner, norms), 2.0 * upstream * of_norms

    return 3.0 * _sine(inner, norms) * inner + _angular_0(inner, norms) * squares, gradients


_ANGULAR = (_angular_0, _angular_1, _angular_2)


@_dispatch.register(kernels.Constant)
def _constant(kernel: kernels.Constant, gram: GramBlocks) -> GramBlocks:
    variance = tf.convert_to_tensor(kernel.variance)
    return _map(lambda block: _like(variance, block) * tf.ones_like(block), gram)


@_dispatch.register(kernels.White)
def _white(kernel: kernels.White, gram: GramBlocks) -> GramBlocks:
    diag_i = _like(kernel.variance, gram.ii_diag) * tf.ones_like(gram.ii_diag)
    return GramBlocks(
        lambda: tf.linalg.diag(diag_i),
        lambda: tf.zeros_like(gram.it),
        _constant_diag(kernel.variance, gram),
        full_cov=False,
    )


@_dispatch.register(kernels.Sum)
@_dispatch.register(kernels.Product)
def _combination(kernel: kernels.Combination, gram: GramBlocks) -> GramBlocks:
    return _combined(kernel, [covariance(child, gram) for child in kernel.kernels])


_REDUCTIONS = {kernels.Sum: tf.add_n, kernels.Product: partial(reduce, tf.multiply)}


def _combined(kernel: kernels.Combination, children: Sequence[GramBlocks]) -> GramBlocks:
    """The sum or product of its children's blocks."""
    reduction = next(value for cls, value in _REDUCTIONS.items() if isinstance(kernel, cls))
    return GramBlocks(
        lambda: reduction([child.ii for child in children]),
        lambda: reduction([child.it for child in children]),
        reduction([child.tt for child in children]),
        full_cov=children[0].full_cov,
    )


def check_computable_from_gram(kernel: kernels.Kernel, *, features: bool = False) -> None:
    """Raise `KernelNotComputableFromGram` unless `covariance` accepts the kernel.

    Tries it on a small Gram matrix, so a user's registered kernel is asked like any other.

    :param features: the kernel will be given `FeatureBlocks` of genuine features.

    >>> gpflow_dkp.gram.check_computable_from_gram(gpflow.kernels.Matern32())
    >>> ard = gpflow.kernels.Matern32(lengthscales=[1.0, 2.0])
    >>> gpflow_dkp.gram.check_computable_from_gram(ard)
    Traceback (most recent call last):
        ...
    gpflow_dkp.gram.covariance.KernelNotComputableFromGram: ... one value of lengthscales ...
    """
    eye = tf.eye(2, dtype=gpflow.default_float())
    example = GramBlocks(eye, 0.5 * eye, tf.ones([2], eye.dtype))
    blocks = covariance(kernel, FeatureBlocks(eye, 0.5 * eye) if features else example)
    tf.nest.map_structure(tf.convert_to_tensor, (blocks.ii, blocks.it, blocks.tt))


def _require_formula_of_registered_class(kernel: kernels.Kernel) -> None:
    """Refuse a subclass that states another `K` than the class whose formula would be used."""
    cls = type(kernel)
    registered = next((base for base in cls.__mro__ if base in _dispatch.registry), object)
    if registered in (object, cls):
        return
    if cls.K is not getattr(registered, "K"):  # noqa: B009  # object, to mypy, has none
        raise KernelNotComputableFromGram(kernel, "it states its own K on inputs")
    stationary = kernels.IsotropicStationary
    if issubclass(cls, stationary) and cls.K_r2 is stationary.K_r2 and not hasattr(cls, "K_r"):
        raise KernelNotComputableFromGram(kernel, "it states neither K_r2 nor K_r")


def _require_full_active_dims(kernel: kernels.Kernel) -> None:
    if not (isinstance(kernel.active_dims, slice) and kernel.active_dims == slice(None)):
        raise KernelNotComputableFromGram(
            kernel, f"a Gram matrix has no input dimensions, got active_dims={kernel.active_dims}"
        )
    for child in getattr(kernel, "kernels", ()):
        _require_full_active_dims(child)


def _require_scalar(kernel: kernels.Kernel, name: str) -> None:
    shape = getattr(getattr(kernel, name), "shape", ())  # without a parameter's value, which costs
    if len(shape) != 0:
        raise KernelNotComputableFromGram(
            kernel,
            f"it has one value of {name} a dimension (ARD), got shape {shape}, needs a scalar",
        )


def _like(parameter: tf.Tensor | float, block: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.convert_to_tensor(parameter), block.dtype)


def _constant_diag(variance: tf.Tensor, gram: GramBlocks) -> tf.Tensor:
    return _like(variance, gram.tt) * tf.ones_like(gram.tt)


def _map(function, gram: GramBlocks) -> GramBlocks:  # type: ignore[no-untyped-def]
    ii, it = (lambda: function(gram.ii)), (lambda: function(gram.it))
    return GramBlocks(ii, it, function(gram.tt), full_cov=gram.full_cov)
