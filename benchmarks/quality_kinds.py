"""Does the default score judge verse, dialogue, formulas, code and short texts as what they are?

    python benchmarks/quality_kinds.py --data '../shared/data/real/real-*.parquet' [--seed 4]

Verse and dialogue: the beginnings of works in the public domain, below. Formulas: abstracts with LaTeX beside those
without, and each beside itself with its formulas taken out. Code: by language, below. Short: the first sentences, or
the first 10 to 60 words, of intact documents (of 50 words and more, sources as in `quality_words.py`) that the model's
sample lacks: a part of a document that was counted may fall into the half that holds it. Of each the share of the
language's intact documents that score less, and how surely it stands above its own words shuffled (area under the
curve).
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Sequence

import duckdb
import numpy as np
from quality_planted import pieces
from quality_words import PLANTED_SOURCES, auc

from datamask.quality import pool_model as pool
from datamask.quality.content import ContentScorer
from datamask.quality.documents import Documents

VERSE = {
    ("en", "Shakespeare, sonnet 18"): """Shall I compare thee to a summer's day?
Thou art more lovely and more temperate:
Rough winds do shake the darling buds of May,
And summer's lease hath all too short a date:
Sometime too hot the eye of heaven shines,
And often is his gold complexion dimm'd;
And every fair from fair sometime declines,
By chance or nature's changing course untrimm'd;
But thy eternal summer shall not fade
Nor lose possession of that fair thou owest;
Nor shall Death brag thou wander'st in his shade,
When in eternal lines to time thou growest:
So long as men can breathe or eyes can see,
So long lives this, and this gives life to thee.""",
    ("en", "Blake, The Tyger"): """Tyger Tyger, burning bright,
In the forests of the night;
What immortal hand or eye,
Could frame thy fearful symmetry?

In what distant deeps or skies
Burnt the fire of thine eyes?
On what wings dare he aspire?
What the hand, dare seize the fire?

And what shoulder, & what art,
Could twist the sinews of thy heart?
And when thy heart began to beat,
What dread hand? & what dread feet?

What the hammer? what the chain,
In what furnace was thy brain?
What the anvil? what dread grasp,
Dare its deadly terrors clasp!

Tyger Tyger burning bright,
In the forests of the night:
What immortal hand or eye,
Dare frame thy fearful symmetry?""",
    ("en", "Poe, The Raven"): """Once upon a midnight dreary, while I pondered, weak and weary,
Over many a quaint and curious volume of forgotten lore,
While I nodded, nearly napping, suddenly there came a tapping,
As of some one gently rapping, rapping at my chamber door.
"'Tis some visitor," I muttered, "tapping at my chamber door;
Only this, and nothing more."

Ah, distinctly I remember, it was in the bleak December,
And each separate dying ember wrought its ghost upon the floor.
Eagerly I wished the morrow; vainly I had sought to borrow
From my books surcease of sorrow, sorrow for the lost Lenore,
For the rare and radiant maiden whom the angels name Lenore,
Nameless here forevermore.""",
    ("en", "Dickinson, 479"): """Because I could not stop for Death –
He kindly stopped for me –
The Carriage held but just Ourselves –
And Immortality.

We slowly drove – He knew no haste
And I had put away
My labor and my leisure too,
For His Civility –

We passed the School, where Children strove
At Recess – in the Ring –
We passed the Fields of Gazing Grain –
We passed the Setting Sun –""",
    ("en", "Wordsworth, Daffodils"): """I wandered lonely as a cloud
That floats on high o'er vales and hills,
When all at once I saw a crowd,
A host, of golden daffodils;
Beside the lake, beneath the trees,
Fluttering and dancing in the breeze.

Continuous as the stars that shine
And twinkle on the milky way,
They stretched in never-ending line
Along the margin of a bay:
Ten thousand saw I at a glance,
Tossing their heads in sprightly dance.""",
    ("en", "Carroll, The Walrus and the Carpenter"): """The sun was shining on the sea,
Shining with all his might:
He did his very best to make
The billows smooth and bright -
And this was odd, because it was
The middle of the night.

The moon was shining sulkily,
Because she thought the sun
Had got no business to be there
After the day was done -
"It's very rude of him," she said,
"To come and spoil the fun!"

The sea was wet as wet could be,
The sands were dry as dry.
You could not see a cloud, because
No cloud was in the sky:
No birds were flying overhead -
There were no birds to fly.""",
    ("fr", "Verlaine, Chanson d'automne"): """Les sanglots longs
Des violons
De l'automne
Blessent mon cœur
D'une langueur
Monotone.

Tout suffocant
Et blême, quand
Sonne l'heure,
Je me souviens
Des jours anciens
Et je pleure ;

Et je m'en vais
Au vent mauvais
Qui m'emporte
Deçà, delà,
Pareil à la
Feuille morte.""",
    ("fr", "La Fontaine, La Cigale et la Fourmi"): """La Cigale, ayant chanté
Tout l'été,
Se trouva fort dépourvue
Quand la bise fut venue.
Pas un seul petit morceau
De mouche ou de vermisseau.
Elle alla crier famine
Chez la Fourmi sa voisine,
La priant de lui prêter
Quelque grain pour subsister
Jusqu'à la saison nouvelle.
« Je vous paierai, lui dit-elle,
Avant l'août, foi d'animal,
Intérêt et principal. »
La Fourmi n'est pas prêteuse ;
C'est là son moindre défaut.
« Que faisiez-vous au temps chaud ?
Dit-elle à cette emprunteuse.
– Nuit et jour à tout venant
Je chantais, ne vous déplaise.
– Vous chantiez ? j'en suis fort aise.
Eh bien ! dansez maintenant. »""",
    ("fr", "Hugo, Demain, dès l'aube"): """Demain, dès l'aube, à l'heure où blanchit la campagne,
Je partirai. Vois-tu, je sais que tu m'attends.
J'irai par la forêt, j'irai par la montagne.
Je ne puis demeurer loin de toi plus longtemps.

Je marcherai les yeux fixés sur mes pensées,
Sans rien voir au dehors, sans entendre aucun bruit,
Seul, inconnu, le dos courbé, les mains croisées,
Triste, et le jour pour moi sera comme la nuit.""",
    ("de", "Goethe, Erlkönig"): """Wer reitet so spät durch Nacht und Wind?
Es ist der Vater mit seinem Kind;
Er hat den Knaben wohl in dem Arm,
Er faßt ihn sicher, er hält ihn warm.

Mein Sohn, was birgst du so bang dein Gesicht? –
Siehst, Vater, du den Erlkönig nicht?
Den Erlenkönig mit Kron' und Schweif? –
Mein Sohn, es ist ein Nebelstreif. –""",
    ("de", "Heine, Lorelei"): """Ich weiß nicht, was soll es bedeuten,
Daß ich so traurig bin;
Ein Märchen aus alten Zeiten,
Das kommt mir nicht aus dem Sinn.

Die Luft ist kühl und es dunkelt,
Und ruhig fließt der Rhein;
Der Gipfel des Berges funkelt
Im Abendsonnenschein.

Die schönste Jungfrau sitzet
Dort oben wunderbar,
Ihr goldnes Geschmeide blitzet,
Sie kämmt ihr goldenes Haar.""",
    ("ru", "Пушкин, К ***"): """Я помню чудное мгновенье:
Передо мной явилась ты,
Как мимолетное виденье,
Как гений чистой красоты.

В томленьях грусти безнадежной,
В тревогах шумной суеты,
Звучал мне долго голос нежный
И снились милые черты.""",
    ("it", "Dante, Inferno I"): """Nel mezzo del cammin di nostra vita
mi ritrovai per una selva oscura,
ché la diritta via era smarrita.

Ahi quanto a dir qual era è cosa dura
esta selva selvaggia e aspra e forte
che nel pensier rinova la paura!

Tant' è amara che poco è più morte;
ma per trattar del ben ch'i' vi trovai,
dirò de l'altre cose ch'i' v'ho scorte.""",
    ("es", "Bécquer, Rima LIII"): """Volverán las oscuras golondrinas
en tu balcón sus nidos a colgar,
y otra vez con el ala a sus cristales
jugando llamarán.

Pero aquellas que el vuelo refrenaban
tu hermosura y mi dicha a contemplar,
aquellas que aprendieron nuestros nombres...
ésas... ¡no volverán!""",
}
DIALOGUE = {
    ("en", "Carroll, A Mad Tea-Party"): """"Have some wine," the March Hare said in an encouraging tone.
Alice looked all round the table, but there was nothing on it but tea. "I don't see any wine," she remarked.
"There isn't any," said the March Hare.
"Then it wasn't very civil of you to offer it," said Alice angrily.
"It wasn't very civil of you to sit down without being invited," said the March Hare.
"I didn't know it was your table," said Alice; "it's laid for a great many more than three."
"Your hair wants cutting," said the Hatter. He had been looking at Alice for some time with great curiosity, and
this was his first speech.
"You should learn not to make personal remarks," Alice said with some severity; "it's very rude.\"""",
    ("en", "Wilde, The Importance of Being Earnest"): """ALGERNON. Did you hear what I was playing, Lane?
LANE. I didn't think it polite to listen, sir.
ALGERNON. I'm sorry for that, for your sake. I don't play accurately – any one can play accurately – but I play with
wonderful expression. As far as the piano is concerned, sentiment is my forte. I keep science for Life.
LANE. Yes, sir.
ALGERNON. And, speaking of the science of Life, have you got the cucumber sandwiches cut for Lady Bracknell?
LANE. Yes, sir. [Hands them on a salver.]
ALGERNON. Oh! by the way, Lane, I see from your book that on Thursday night, when Lord Shoreman and Mr. Worthing were
dining with me, eight bottles of champagne are entered as having been consumed.
LANE. Yes, sir; eight bottles and a pint.""",
    ("en", "Shakespeare, Hamlet I.1"): """BERNARDO. Who's there?
FRANCISCO. Nay, answer me. Stand and unfold yourself.
BERNARDO. Long live the King!
FRANCISCO. Bernardo?
BERNARDO. He.
FRANCISCO. You come most carefully upon your hour.
BERNARDO. 'Tis now struck twelve. Get thee to bed, Francisco.
FRANCISCO. For this relief much thanks. 'Tis bitter cold, And I am sick at heart.
BERNARDO. Have you had quiet guard?
FRANCISCO. Not a mouse stirring.
BERNARDO. Well, good night. If you do meet Horatio and Marcellus, The rivals of my watch, bid them make haste.""",
    ("en", "Austen, Pride and Prejudice 1"): """"My dear Mr. Bennet," said his lady to him one day, "have you heard that
Netherfield Park is let at last?"
Mr. Bennet replied that he had not.
"But it is," returned she; "for Mrs. Long has just been here, and she told me all about it."
Mr. Bennet made no answer.
"Do not you want to know who has taken it?" cried his wife, impatiently.
"You want to tell me, and I have no objection to hearing it."
This was invitation enough.
"Why, my dear, you must know, Mrs. Long says that Netherfield is taken by a young man of large fortune from the north of
England; that he came down on Monday in a chaise and four to see the place.\"""",
    ("en", "a chat, made for this"): """Anna: Are you coming to the market on Saturday?
Ben: I think so. What time are you going?
Anna: About ten, before it gets too crowded.
Ben: Can we make it eleven? I have to take my brother to the station first.
Anna: Eleven is fine. Bring a bag, they don't give them out any more.
Ben: Will do. Do you know if the man with the cheese is there this week?
Anna: He was there last week, so I suppose he will be. Why?
Ben: My mother liked what we bought in spring, and it is her birthday on Sunday.
Anna: Then we should go there first, he sells out early.
Ben: All right, see you at eleven at the gate.""",
    (
        "fr",
        "Molière, Le Bourgeois gentilhomme",
    ): """MONSIEUR JOURDAIN. Il faut que je vous fasse une confidence. Je suis amoureux
d'une personne de grande qualité, et je souhaiterais que vous m'aidassiez à lui écrire quelque chose dans un petit
billet.
MAÎTRE DE PHILOSOPHIE. Fort bien.
MONSIEUR JOURDAIN. Cela sera galant, oui.
MAÎTRE DE PHILOSOPHIE. Sans doute. Sont-ce des vers que vous lui voulez écrire ?
MONSIEUR JOURDAIN. Non, non, point de vers.
MAÎTRE DE PHILOSOPHIE. Vous ne voulez que de la prose ?
MONSIEUR JOURDAIN. Non, je ne veux ni prose ni vers.
MAÎTRE DE PHILOSOPHIE. Il faut bien que ce soit l'un, ou l'autre.
MONSIEUR JOURDAIN. Pourquoi ?
MAÎTRE DE PHILOSOPHIE. Par la raison, Monsieur, qu'il n'y a pour s'exprimer que la prose, ou les vers.""",
    ("de", "Goethe, Faust I"): """MARGARETE. Nun sag, wie hast du's mit der Religion? Du bist ein herzlich guter Mann,
Allein ich glaub, du hältst nicht viel davon.
FAUST. Laß das, mein Kind! Du fühlst, ich bin dir gut; Für meine Lieben ließ' ich Leib und Blut,
Will niemand sein Gefühl und seine Kirche rauben.
MARGARETE. Das ist nicht recht, man muß dran glauben!
FAUST. Muß man?
MARGARETE. Ach! wenn ich etwas auf dich könnte! Du ehrst auch nicht die heil'gen Sakramente.
FAUST. Ich ehre sie.
MARGARETE. Doch ohne Verlangen. Zur Messe, zur Beichte bist du lange nicht gegangen. Glaubst du an Gott?""",
}
CODE = {
    "JavaScript": """import { readFile } from "node:fs/promises";

/** Counts how often each word occurs in a file. */
export async function countWords(path) {
  const text = await readFile(path, "utf8");
  const counts = new Map();
  for (const word of text.toLowerCase().split(/[^a-z]+/)) {
    if (!word) continue;
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  return [...counts].sort((a, b) => b[1] - a[1]);
}

const [, , path, limit = "10"] = process.argv;
for (const [word, count] of (await countWords(path)).slice(0, Number(limit))) {
  console.log(`${word}: ${count}`);
}""",
    "C": """#include <stdio.h>
#include <stdlib.h>

/* Returns the greatest common divisor of two positive numbers. */
static unsigned gcd(unsigned a, unsigned b)
{
    while (b != 0) {
        unsigned rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s A B\\n", argv[0]);
        return EXIT_FAILURE;
    }
    printf("%u\\n", gcd(strtoul(argv[1], NULL, 10), strtoul(argv[2], NULL, 10)));
    return EXIT_SUCCESS;
}""",
    "Java": """package org.example.bank;

import java.util.ArrayList;
import java.util.List;

/** An account with a balance that never falls below zero. */
public class Account {
    private final String owner;
    private final List<Long> history = new ArrayList<>();
    private long balance;

    public Account(String owner) {
        this.owner = owner;
    }

    public void withdraw(long amount) {
        if (amount > balance) {
            throw new IllegalArgumentException("not enough money for " + owner);
        }
        balance -= amount;
        history.add(-amount);
    }
}""",
    "Rust": """use std::collections::HashMap;

/// Groups the words by their sorted letters.
pub fn anagrams<'a>(words: &[&'a str]) -> Vec<Vec<&'a str>> {
    let mut groups: HashMap<String, Vec<&'a str>> = HashMap::new();
    for word in words {
        let mut letters: Vec<char> = word.chars().collect();
        letters.sort_unstable();
        groups.entry(letters.into_iter().collect()).or_default().push(word);
    }
    groups.into_values().filter(|group| group.len() > 1).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn finds_them() {
        assert_eq!(super::anagrams(&["tea", "eat", "dog"]).len(), 1);
    }
}""",
    "SQL": """CREATE TABLE readers (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    joined DATE NOT NULL DEFAULT CURRENT_DATE
);
-- Who has kept a book for more than four weeks?
SELECT readers.name, books.title, loans.taken
FROM loans
JOIN readers ON readers.id = loans.reader
JOIN books ON books.id = loans.book
WHERE loans.returned IS NULL
  AND loans.taken < CURRENT_DATE - INTERVAL '28 days'
ORDER BY loans.taken, readers.name
LIMIT 100;""",
    "shell": """#!/bin/sh
# Copies the folder to a dated archive and keeps the last seven of them.
set -eu
source="${1:?usage: backup FOLDER TARGET}"
target="${2:?usage: backup FOLDER TARGET}"
name="$target/$(basename "$source")-$(date +%Y-%m-%d).tar.gz"
tar -czf "$name" -C "$(dirname "$source")" "$(basename "$source")"
ls -1t "$target"/*.tar.gz | tail -n +8 | while read -r old; do
    echo "removing $old"
    rm -- "$old"
done""",
}
SENTENCE = re.compile(r"(?<=[.!?።])\s+")


def short(text: str, language: str) -> dict[str, str]:
    """Its first sentences, and its first words."""
    sentences, words = SENTENCE.split(text), text.split()
    return {f"{n} sentences": " ".join(sentences[:n]) for n in (1, 2, 3)} | {
        f"{n} words": " ".join(words[:n]) for n in (10, 20, 30, 40, 60)
    }


def shuffled(text: str, language: str, generator: random.Random) -> str:
    words = pieces(text, language)
    return " ".join(generator.sample(words, len(words)))


class Judge:
    """Scores beside those of the intact documents of each language."""

    def __init__(self, model: pool.Model, intact: dict[str, list[str]]) -> None:
        self._scorer = ContentScorer(model)
        self.usual = {name: np.sort(self.scores(texts, name)) for name, texts in intact.items()}

    def scores(self, texts: Sequence[str], language: str | None) -> np.ndarray:
        names = [language] * len(texts)
        return self._scorer.score(Documents(np.arange(len(texts)), texts, languages=names)).score

    def below(self, scores: np.ndarray, language: str) -> np.ndarray:
        """The share of the language's intact documents that score less; NaN where there are none."""
        usual = self.usual.get(language)
        return np.full(len(scores), np.nan) if usual is None else np.searchsorted(usual, scores) / len(usual)


def works(judge: Judge, title: str, texts: dict[tuple[str, str], str], generator: random.Random) -> None:
    print(f"\n{title:48}{'score':>8}{'above':>8}{'shuffled':>10}")
    every, junk, above = [], [], []
    for (language, name), text in texts.items():
        mine = judge.scores([text], language)
        bad = judge.scores([shuffled(text, language, generator) for _ in range(10)], language)
        below = float(judge.below(mine, language)[0])
        every.append(float(mine[0]))
        junk += bad.tolist()
        above.append(below)
        print(f"{language} {name:45}{mine[0]:8.2f}{below:8.2f}{np.median(bad):10.2f}")
    print(
        f"{'median; area above the shuffled ' + format(auc(np.array(every), np.array(junk)), '.3f'):48}"
        f"{np.median(every):8.2f}{np.nanmedian(above):8.2f}{np.median(junk):10.2f}"
    )


def formulas(judge: Judge, abstracts: list[str]) -> None:
    print(f"\n{'abstracts':48}{'number':>8}{'5 %':>8}{'median':>8}{'without':>9}")
    dollars = np.array([text.count("$") // 2 for text in abstracts])
    bare = [re.sub(r"\$[^$]*\$", "it", text) for text in abstracts]
    scores, without = judge.scores(abstracts, "en"), judge.scores(bare, "en")
    for low, high in ((0, 1), (1, 4), (4, 10), (10, 1000)):
        some = (dollars >= low) & (dollars < high)
        five, median = np.quantile(scores[some], (0.05, 0.5))
        print(
            f"{f'{low} to {high - 1} formulas':48}{some.sum():8}{five:8.2f}{median:8.2f}{np.median(without[some]):9.2f}"
        )
    braces = np.array(["{" in text for text in abstracts])
    print(
        f"{'with a brace':48}{braces.sum():8}{np.quantile(scores[braces], 0.05):8.2f}{np.median(scores[braces]):8.2f}"
    )


def code(judge: Judge, generator: random.Random) -> None:
    print(f"\n{'code':48}{'score':>8}{'shuffled':>10}")
    for name, text in CODE.items():
        bad = judge.scores([shuffled(text, "en", generator) for _ in range(10)], None)
        print(f"{name:48}{judge.scores([text], None)[0]:8.2f}{np.median(bad):10.2f}")


def shorts(judge: Judge, intact: dict[str, list[str]], documents: int, generator: random.Random) -> None:
    names = list(short("", ""))
    table: dict[str, dict[str, tuple[float, float, float]]] = {}
    for language, texts in intact.items():
        some = generator.sample(texts, min(documents, len(texts)))
        for name in names:
            made = [short(text, language)[name] for text in some]
            scores = judge.scores(made, language)
            junk = judge.scores([shuffled(text, language, generator) for text in made], language)
            table.setdefault(name, {})[language] = (
                float(np.median(scores)), float(np.mean(scores < 0.34)), auc(scores, junk)
            )  # fmt: skip
    for place, title in enumerate(
        ("median score", "share below .34, the score at the tenth percentile", "above itself shuffled")
    ):
        print(f"\nshort texts: {title}\n{'':16}" + "".join(f"{x:>6}" for x in intact))
        for name, by in table.items():
            print(f"{name:16}" + "".join(f"{by[x][place]:6.2f}" for x in intact))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="glob of parquet files")
    parser.add_argument("--documents", type=int, default=100, help="of a language that short texts are made of")
    parser.add_argument("--seed", type=int, default=3, help="of the documents and of what is shuffled")
    options = parser.parse_args()
    query = f"select text, source, language from read_parquet('{options.data}') where trim(text) <> ''"
    rows = [row for row in duckdb.sql(query).to_arrow_table().to_pylist() if not row["text"].isspace()]
    held = pool.sample((row["text"], row["language"]) for row in rows)
    report(pool.fit(*held), rows, set(held[0]), options.documents, random.Random(options.seed))


def report(
    model: pool.Model, rows: list[dict[str, str]], held: set[str], documents: int, generator: random.Random
) -> None:
    """`held`: beginnings of the texts that the model's sample holds."""
    intact: dict[str, list[str]] = {}
    for row in rows:
        if row["source"] in PLANTED_SOURCES and row["language"] and len(row["text"].split()) >= 50:
            intact.setdefault(row["language"], []).append(row["text"])
    intact = {name: texts for name, texts in sorted(intact.items()) if len(texts) >= 50}
    judge = Judge(model, intact)
    works(judge, "verse", VERSE, generator)
    works(judge, "dialogue", DIALOGUE, generator)
    formulas(judge, [row["text"] for row in rows if row["source"] == "arxiv_abstracts"])
    code(judge, generator)
    fresh = {name: [text for text in texts if text[: pool.CHARACTERS] not in held] for name, texts in intact.items()}
    shorts(judge, {name: texts for name, texts in fresh.items() if len(texts) >= 15}, documents, generator)


if __name__ == "__main__":
    main()
