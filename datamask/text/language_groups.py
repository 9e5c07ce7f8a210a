"""Which texts are of one language, from their letters alone: cheap groups for the fits of encoder and quality.

A text's profile is how often each run of three letters stands in its beginning, hashed into BUCKETS: character
n-grams tell languages apart (Cavnar & Trenkle 1994). Within each script profiles are clustered finely by spherical
k-means (Dhillon & Modha 2001) from seeds far apart; then the two clusters most alike are joined, again and again. On
the real corpus English of any source is alike by .88 or more, any two
languages by .84 or less, but for English and its Pidgin (.91).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array

CHARACTERS = 500  # of a text that are looked at
BUCKETS = 1024
# Of a script, before they are joined. With fewer, a rare language beside a large one often has none of its own, and the
# one it shares joins others: with 128 Hausa and Swahili in 5 of 20 draws of seeds on the real corpus, with 256 in none.
CLUSTERS = 256
DOCUMENTS = 8  # to a cluster on average, at least
MANY_LETTERS = 60  # as many as the entropy says: a script that writes syllables or words by a sign each
OTHER_SCRIPT = 0.1  # pages in any script hold Latin names and commands
ROUNDS = 5  # of k-means
OF_A_LANGUAGE = 0.84  # cosine of two clusters' mean profiles
OF_A_KIND = 0.92
SPACE = ord(" ")
SIGNS = ((0x0, 0x61), (0x7B, 0xC0), (0x2000, 0x2070), (0x3000, 0x3040), (0xFF00, 0xFF21))  # no letters


def language_groups(texts: Sequence[str], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Each text's language and its kind, both int64 [texts] from 0; the same for the same texts and seed.

    Kinds are finer: close relatives (English and its Pidgin), or texts of one form. Neither has a name, and a language
    whose texts are of very different forms may be cut in two.
    """
    letters, owners = _letters(texts)
    scripts = _scripts(letters, owners, len(texts))
    languages, kinds = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.int64)
    for script in np.unique(scripts):
        of_script = np.flatnonzero(scripts == script)
        own = (scripts == script)[owners]
        profiles = _profiles(letters[own], np.searchsorted(of_script, owners[own]), len(of_script))
        cluster = _k_means(profiles, min(CLUSTERS, max(1, len(of_script) // DOCUMENTS)), np.random.default_rng(seed))
        sums = _sums(profiles, cluster)
        for group, similarity in ((languages, OF_A_LANGUAGE), (kinds, OF_A_KIND)):
            group[of_script] = group.max() + 1 + _joined(sums, similarity)[cluster]
    return np.unique(languages, return_inverse=True)[1], np.unique(kinds, return_inverse=True)[1]


def _letters(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The letters of the texts' beginnings, uint32, runs of all else one space; and whose each is, int64."""
    beginnings = [f" {text[:CHARACTERS].lower()} " for text in texts]
    letters = np.frombuffer("".join(beginnings).encode("utf-32-le", "surrogatepass"), np.uint32).copy()
    owners = np.repeat(np.arange(len(texts)), [len(beginning) for beginning in beginnings])
    space = np.zeros(len(letters), bool)
    for first, last in SIGNS:
        space |= (letters >= first) & (letters < last)
    letters[space] = SPACE
    kept = ~space | np.append(True, ~space[:-1])
    return letters[kept], owners[kept]


def _scripts(letters: np.ndarray, owners: np.ndarray, texts: int) -> np.ndarray:
    """int64 [texts]: the script of each text: Latin, or that of which it has most, given OTHER_SCRIPT of its letters.

    A letter's script is the first word of its name in Unicode, which tells them apart well enough.
    """
    met = np.flatnonzero(np.bincount(letters))
    names = [unicodedata.name(chr(letter), "LATIN").split()[0].split("-")[0] for letter in met]
    names = ["CJK" if name in ("HIRAGANA", "KATAKANA", "HALFWIDTH", "FULLWIDTH") else name for name in names]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(["LATIN", *names]))}
    number_of = np.zeros(int(met.max(initial=0)) + 1, np.int64)
    number_of[met] = [numbers[name] for name in names]
    number_of[SPACE] = 0
    counts = np.bincount(owners * len(numbers) + number_of[letters], minlength=texts * len(numbers))
    counts = counts.reshape(texts, len(numbers))
    other = counts[:, 1:].max(axis=1, initial=0)
    most = counts[:, 1:].argmax(axis=1) + 1 if len(numbers) > 1 else np.zeros(texts, np.int64)
    return np.where(other > OTHER_SCRIPT * counts.sum(axis=1), most, 0)


def _profiles(letters: np.ndarray, owners: np.ndarray, texts: int) -> np.ndarray:
    """float32 [texts, BUCKETS]: square roots of the shares of runs of three letters, or of two where there are many
    letters (so that the frequent few do not decide alone), of unit length."""
    met = np.bincount(letters[letters != SPACE]).astype(np.float64)
    shares = met[met > 0] / met.sum()
    width = 2 if -(shares * np.log(shares)).sum() > np.log(MANY_LETTERS) else 3
    runs = max(len(letters) - width + 1, 0)
    mixed = letters[:runs]
    for step in range(1, width):
        mixed = mixed * np.uint32(0x9E3779B1) ^ letters[step : step + runs]
    mixed = (mixed ^ (mixed >> 15)) * np.uint32(0x2C1B3C6D)
    within = owners[:runs] == owners[width - 1 :]
    counts = np.zeros((texts, BUCKETS), np.float32)
    np.add.at(counts.ravel(), owners[:runs][within] * BUCKETS + (mixed[within] >> 12) % BUCKETS, np.float32(1))
    return _unit(np.sqrt(counts))


def _joined(sums: np.ndarray, enough: float) -> np.ndarray:
    """int64 [clusters]: which clusters are one, the two most alike joined until none are alike enough.

    :param sums: float32 [clusters, BUCKETS], of the profiles of each
    """
    sums = sums.copy()
    name = np.arange(len(sums))
    similarity = _unit(sums) @ _unit(sums).T
    np.fill_diagonal(similarity, -1)
    while similarity.max() > enough:
        one, other = sorted(divmod(int(similarity.argmax()), len(sums)))
        sums[one] += sums[other]
        name[name == other] = one
        similarity[one] = similarity[:, one] = np.where(
            similarity[one] == -1, -1, _unit(sums) @ _unit(sums[one : one + 1])[0]
        )
        similarity[one, one] = -1
        similarity[other] = similarity[:, other] = -1
    return name


def _k_means(profiles: np.ndarray, clusters: int, generator: np.random.Generator) -> np.ndarray:
    """int64 [texts]: spherical k-means from k-means++ seeds (Arthur & Vassilvitskii 2007)."""
    seeds = [int(generator.integers(len(profiles)))]
    far = 1 - profiles @ profiles[seeds[0]]
    while len(seeds) < clusters and (total := float(np.clip(far, 0, None).sum(dtype=np.float64))) > 1e-6 * len(far):
        drawn = np.searchsorted(np.cumsum(np.clip(far, 0, None), dtype=np.float64), generator.random() * total)
        seeds.append(min(int(drawn), len(profiles) - 1))
        far = np.minimum(far, 1 - profiles @ profiles[seeds[-1]])
    centres = profiles[seeds]
    for _ in range(ROUNDS):
        cluster = np.unique((profiles @ centres.T).argmax(axis=1), return_inverse=True)[1]
        centres = _unit(_sums(profiles, cluster))
    return cluster


def _sums(profiles: np.ndarray, cluster: np.ndarray) -> np.ndarray:
    """float32 [clusters, BUCKETS]: the sums of the profiles of each, in the order of the texts."""
    member = csr_array((np.ones(len(cluster), np.float32), cluster, np.arange(len(cluster) + 1)))
    found: np.ndarray = member.T @ profiles
    return found


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
