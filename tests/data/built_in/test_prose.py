"""Docstrings of every style become plain English paragraphs."""

from __future__ import annotations

import pytest

from workbench.data.docstrings import inline, is_english, paragraphs, split_signature

NUMPYDOC = """
    Draw samples from a *normal* distribution.

    The density is often called the ``bell curve`` because of :func:`its shape <scipy.stats.norm>` [1]_.

    .. versionadded:: 1.17
       Not before that.

    .. note::
        New code should use the `~numpy.random.Generator.normal`
        method of a generator.

    Parameters
    ----------
    loc : float or array_like of floats
        Mean ("centre") of the distribution.
    size : int, optional
        Output shape.  Given ``(m, n)``, that many samples are drawn
        and returned::

            x = normal(size=(2, 3))

        - a list item that says something of the shape
        - another item, which goes on
          in the next line

    See Also
    --------
    scipy.stats.norm : the probability density function of the distribution.
    other

    Examples
    --------
    Draw samples from the distribution:

    >>> mu, sigma = 0, 0.1
    >>> s = np.random.normal(mu, sigma, 1000)
    array of the values that is not English but follows a prompt

    Verify the mean and the standard deviation of them.

    ========  =====================
    Name      What is in the table of it
    ========  =====================

    .. math:: p(x) = e^x

    References
    ----------
    .. [1] Wikipedia, "Normal distribution", which is the article on it.
    """


def test_numpydoc_becomes_plain_paragraphs():
    assert paragraphs(NUMPYDOC) == [
        "Draw samples from a normal distribution.",
        "The density is often called the bell curve because of its shape.",
        "New code should use the numpy.random.Generator.normal method of a generator.",
        'loc: Mean ("centre") of the distribution.',
        "size: Output shape. Given (m, n), that many samples are drawn and returned:",
        "a list item that says something of the shape",
        "another item, which goes on in the next line",
        "scipy.stats.norm: the probability density function of the distribution.",
        "Verify the mean and the standard deviation of them.",
    ]


def test_google_and_sphinx_styles():
    google = """Move the model to a device, in place.

    Args:
        device (torch.device, optional): the desired device of the parameters
            in this module
        blocking: whether to wait for the host, which is slower
    Returns:
        The module itself, so that calls can be chained.

    Example::

        >>> module.cuda()

    It can be called at any time.
    """
    assert paragraphs(google) == [
        "Move the model to a device, in place.",
        "device: the desired device of the parameters in this module",
        "blocking: whether to wait for the host, which is slower",
        "The module itself, so that calls can be chained.",
        "It can be called at any time.",
    ]
    sphinx = """Open the file.

    :param path: the name of the file that is to be opened
    :type path: str
    :returns: a file object that has to be closed by the caller
    """
    assert paragraphs(sphinx)[1:] == [
        "path: the name of the file that is to be opened",
        "a file object that has to be closed by the caller",
    ]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Return the mean.", True),
        ("Whether the array is empty or not, as a boolean.", True),
        ("x = np.linspace(0, 1, 5); y = f(x)", False),
        ("int, optional", False),
        ("array([0, 1, 2, 3, 4]) or array([1])", False),
        ("TODO: this is to be done by someone at some time", False),
    ],
)
def test_what_counts_as_english(text: str, kept: bool):
    assert is_english(text) is kept


def test_inline_markup_goes():
    marked = "Use :class:`~a.b.Thing` or ``x * 2``, **not** `this`_; see `here <http://x.y>`__ and |name| of %(kind)s."
    assert inline(marked) == "Use Thing or x * 2, not this; see here and name of kind."


def test_a_signature_on_the_first_line_is_taken_off():
    assert split_signature("abs(input, *, out=None) -> Tensor\n\nThe absolute value.") == (
        "abs(input, *, out=None)",
        "The absolute value.",
    )
    assert split_signature("f($self, x, /)\n--\n\nText.")[0] == "f(x, /)"
    assert split_signature("No signature (at all) here.")[0] == ""
