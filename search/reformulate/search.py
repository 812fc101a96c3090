"""A collection, its index and its embeddings: everything that is known before learning begins."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from kytolly.machine.memory import check_memory
from kytolly.search.index.bm25 import EPSILON, BM25Index
from kytolly.search.index.collection import Collection
from kytolly.search.index.corpus import load_collection
from kytolly.search.index.embedding import EmbeddingCache, Encoder, make_encoder
from kytolly.search.index.files import read_arrays, write_arrays
from kytolly.search.index.fusion import DocumentVectors, TermVectors
from kytolly.search.index.ranking import best_nonzero
from kytolly.search.index.tokens import (
    AUTO,
    ENGLISH,
    NONE,
    Tokenizer,
    make_tokenizer,
    stop_word_lists,
)
from kytolly.search.reformulate.drift import TOP, drifted_documents
from kytolly.search.reformulate.generated import GeneratedTerms
from kytolly.search.reformulate.mining_features import MiningRules
from kytolly.search.reformulate.options import TYPED_SHARE, ReformulationOptions, RetrievalOptions
from kytolly.search.reformulate.query import (
    CANDIDATE_FEATURES,
    Query,
    SearchRules,
    SkippedQuery,
    mine,
    with_judgments,
)
from kytolly.search.reformulate.result import Hit
from kytolly.search.reformulate.timing import Phases, TimedEncoder
from kytolly.search.text.language import detect_stemmer

COMMON = 0.25  # share of the documents that hold a word which says nothing, without a list of such
HIT_BYTES = 250  # of one document in a ranking
INDEX_FILE, VECTORS_FILE = "index.npz", "vectors.npz"


@dataclasses.dataclass(frozen=True)
class SearchContext:
    """Everything about a collection that is known before learning begins.

    Attributes:
        options: The options of the run.
        collection: Documents, queries and the judgments of some splits.
        index: The collection's documents.
        cache: Embeddings of terms and queries.
        documents: Embeddings of the documents.
        phases: Seconds of the parts of the run.
        skipped: Split -> its queries that cannot be reformulated; filled in by `queries`.
        generator: Proposes candidates; None: there is no rewriter.
        unknown: True where nothing was learned from these documents.
        is_saved: True where index and embeddings are those of a folder, and need no `save` there.
    """

    options: ReformulationOptions
    collection: Collection
    index: BM25Index
    cache: EmbeddingCache
    documents: DocumentVectors
    phases: Phases
    skipped: dict[str, list[SkippedQuery]] = dataclasses.field(default_factory=dict)
    generator: GeneratedTerms | None = None
    unknown: bool = False
    is_saved: bool = False

    @classmethod
    def load(
        cls,
        options: ReformulationOptions,
        splits: Sequence[str],
        phases: Phases | None = None,
        saved: Path | None = None,
        encoder: Encoder | None = None,
        collection: Collection | None = None,
    ) -> SearchContext:
        """Read and index a collection.

        Args:
            options: The collection, and how it is searched.
            splits: Splits whose judgments are read; the files of other splits are not opened.
            phases: Receives the time.
            saved: A folder that `save` wrote to. Its index and embeddings are used if they are of
                these documents with these options; else they are made again. Its rewriter takes
                the place of the one that the options name.
            encoder: An encoder of yours; None: the one that the options name.
            collection: The collection, if it was read before.

        Raises:
            ValueError: The options ask for an encoder that is not given, or for a rewriter that
                does not fit.
        """
        phases = phases or Phases()
        with phases.measure("reading"):
            collection = collection or load_collection(options.collection, splits)
            options = with_language(options, collection.texts)
            retrieval, generator = options.retrieval, None
            if retrieval.rewriter is not None and saved is not None:
                generator = GeneratedTerms.read(saved)
            elif retrieval.rewriter is not None:
                generator = GeneratedTerms.load(retrieval.rewriter, "train" in splits)
        with phases.measure("indexing"):
            index = load_index(saved and saved / INDEX_FILE, collection, retrieval)
            is_saved = index is not None
            if index is None:
                tokenizer = tokenizer_from(retrieval)
                index = BM25Index(collection.texts, tokenizer, retrieval.k1, retrieval.b)
            if generator is not None and saved is None:
                generator.check_index(index)
        with phases.measure("embedding"):
            if encoder is None:
                encoder = encoder_from(retrieval)
            cache = EmbeddingCache(TimedEncoder(encoder, phases), retrieval.cache_entries)
            identity = [encoder.identity, index.digest]
            shape = (len(collection.texts), encoder.dimension)
            documents = load_vectors(saved and saved / VECTORS_FILE, identity, shape)
            if documents is None:
                documents, is_saved = DocumentVectors.of_texts(collection.texts, encoder), False
        return cls(
            options,
            collection,
            index,
            cache,
            documents,
            phases,
            generator=generator,
            is_saved=is_saved,
        )

    def with_texts(self, collection: Collection) -> SearchContext:
        """The search context of a collection that has as many documents, some with other texts."""
        pairs = zip(collection.texts, self.collection.texts, strict=True)
        changed = [doc for doc, (new, old) in enumerate(pairs) if new != old]
        with self.phases.measure("indexing"):
            parameters = self.index.parameters
            index = BM25Index(collection.texts, self.index.tokenizer, *parameters)
        vectors = self.documents.half.copy()
        vectors[changed] = self.cache.encoder.encode([collection.texts[doc] for doc in changed])
        documents = DocumentVectors(vectors)
        return dataclasses.replace(
            self, collection=collection, index=index, documents=documents, skipped={}
        )

    def save(self, folder: Path) -> None:
        """Write index, embeddings and rewriter for `load`."""
        if self.generator is not None:
            self.generator.save(folder)
        self.index.save(folder / INDEX_FILE)
        identity = np.array([self.cache.encoder.identity, self.index.digest])
        arrays = {"identity": identity, "vectors": self.documents.half}
        write_arrays(folder / VECTORS_FILE, arrays)

    @property
    def rules(self) -> SearchRules:
        """The limits of a reformulation."""
        retrieval, pool = self.options.retrieval, self.options.training.pool_documents
        plain, fused = retrieval.typed_share, retrieval.fused_typed_share
        plain = TYPED_SHARE if plain == AUTO else plain
        shares = plain, plain if fused == AUTO else fused
        return SearchRules(retrieval.metric, retrieval.max_terms, retrieval.width, pool, shares)

    def with_shares(self, plain: float | None, fused: float | None) -> SearchContext:
        """The context with other least shares of typed words, without cosines and with them."""
        retrieval = dataclasses.replace(
            self.options.retrieval, typed_share=plain, fused_typed_share=fused
        )
        options = dataclasses.replace(self.options, retrieval=retrieval)
        return dataclasses.replace(self, options=options)

    @property
    def encoder_name(self) -> str:
        """The name of the encoder, as the option `encoder` has it."""
        name = self.cache.encoder.identity.partition("-")[0]
        return name if name in ("hash", "wordllama") else "own"

    @property
    def usual_fusion(self) -> float:
        """The weight of the cosines where neither the options nor dev queries say another one.

        Hashed words say what BM25 says already.
        """
        fusion = self.options.retrieval.fusion
        if fusion != "auto":
            return float(fusion)
        return 0.0 if self.encoder_name == "hash" else 1.0

    @functools.cached_property
    def term_vectors(self) -> TermVectors:
        """Embeddings of the most frequent terms."""
        return TermVectors.of_index(self.index, self.collection.texts, self.cache.encoder)

    @property
    def mining(self) -> MiningRules:
        """The settings of mining."""
        retrieval = self.options.retrieval
        fusion = 0.0 if self.encoder_name == "hash" else 1.0
        return MiningRules(
            feedback_documents=retrieval.feedback_documents,
            candidates=retrieval.candidates,
            fusion=fusion,
            neighbors=retrieval.neighbors,
            query_terms=retrieval.query_terms,
            generated=retrieval.most_generated,
            max_document_share=COMMON if self.unknown and retrieval.stop_words == NONE else 1.0,
        )

    def queries(self, split: str, most: int | None = None) -> list[Query]:
        """A split's queries with their candidates and judgments; of many, `most` are drawn."""
        skipped = self.skipped[split] = []
        numbers = np.array(self.collection.split(split))
        if most is not None and len(numbers) > most:
            drawn = np.random.default_rng(self.options.seed).permutation(len(numbers))[:most]
            numbers = numbers[np.sort(drawn)]
        queries = self.mine(self.collection, numbers.tolist(), skipped)
        return with_judgments(queries, self.collection, split)

    def mine(
        self, collection: Collection, numbers: Sequence[int], skipped: list[SkippedQuery]
    ) -> list[Query]:
        """Queries with their candidates.

        Args:
            collection: A collection with the same documents.
            numbers: Places of the queries in it.
            skipped: Receives the queries that are left out, with the reason.

        Raises:
            ValueError: Candidates and feedback documents would take more memory than is free.
        """
        check_mining_memory(len(numbers), self.index, self.mining)
        workers, generated = self.options.retrieval.workers, None
        if self.generator is not None:
            with self.phases.measure("rewriting"):
                texts = [collection.queries[number] for number in numbers]
                generated = self.generator.terms_of(texts)
        with self.phases.measure("mining"):
            return mine(
                collection,
                numbers,
                self.index,
                self.cache,
                self.documents,
                self.mining,
                workers,
                skipped,
                self.term_vectors if self.mining.neighbors else None,
                generated,
            )

    def rank(
        self,
        collection: Collection,
        numbers: Sequence[int],
        weights: Sequence[Mapping[str, float]],
        fusion: float,
        top: int,
    ) -> list[tuple[Hit, ...]]:
        """[Q] best documents for weighted queries, without a document that is the query itself.

        Args:
            collection: A collection with the same documents.
            numbers: [Q] places of the queries in it.
            weights: [Q] terms and their weights.
            fusion: Weight of the cosines beside BM25.
            top: Documents of a query. Those with score 0 are not found.

        Raises:
            ValueError: The rankings would take more memory than is free.
        """
        return self.rank_all(collection, numbers, [weights], fusion, top)[0]

    def rank_all(
        self,
        collection: Collection,
        numbers: Sequence[int],
        weights: Sequence[Sequence[Mapping[str, float]]],
        fusion: float,
        top: int,
    ) -> list[list[tuple[Hit, ...]]]:
        """[W, Q] `rank` of each of [W, Q] weighted queries, W for each query.

        The query as it was typed is scored once.
        """
        check_memory(
            2 * HIT_BYTES * len(numbers) * min(top, self.index.documents),
            f"rankings of {top} documents for {len(numbers):,} queries",
            "lower --top, or give fewer queries",
        )
        texts = [collection.queries[number] for number in numbers]
        vectors = self.cache.get_batch(texts) if fusion else [None] * len(texts)
        words = [self.index.query_weights(text) for text in texts]  # stemmers bear no threads

        def rankings(row: int) -> list[tuple[Hit, ...]]:
            itself, vector = collection.own_document(numbers[row]), vectors[row]
            best_hits = []
            terms = list(words[row].items())
            typed = self.index.scores(dict(terms))
            if itself is not None:
                typed[itself] = 0.0
            added: np.ndarray | None = None
            if vector is not None:
                added = self.documents.scores(vector, fusion, typed)
            for part in weights:
                items = list(part[row].items())
                if items[: len(terms)] == terms:  # with the same rounding as from the first term
                    scores = self.index.scores(dict(items[len(terms) :]), typed)
                else:
                    scores = self.index.scores(part[row])
                if added is not None:
                    scores += added
                if itself is not None:
                    scores[itself] = 0.0
                best = best_nonzero(scores, top)
                pairs = zip(best.tolist(), scores[best].tolist(), strict=True)
                best_hits.append(
                    tuple(Hit(collection.doc_ids[int(doc)], score) for doc, score in pairs)
                )
            return best_hits

        rows = range(len(numbers))
        if len(rows) == 1:  # threads would cost more than the search
            return [[hits] for hits in rankings(0)]
        with concurrent.futures.ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            ranked = list(pool.map(rankings, rows))
        return [[hits[which] for hits in ranked] for which in range(len(weights))]

    def drifted(self, weights: Mapping[str, float], hits: Sequence[Hit]) -> int:
        """The number of best documents that hold no rare word of a query as it was typed."""
        docs = self.collection.doc_index
        return drifted_documents(self.index, weights, [docs[hit.doc_id] for hit in hits[:TOP]])


def check_mining_memory(queries: int, index: BM25Index, rules: MiningRules) -> None:
    """Refuse rules with which mining, and the table of what it finds, exhaust the memory."""
    documents = min(rules.feedback_documents, index.documents)
    terms = min(len(index.terms), documents * index.longest)
    wide = rules.candidates + rules.neighbors + rules.generated + rules.query_terms
    features = 4 * queries * wide * len(CANDIDATE_FEATURES)
    check_memory(
        features + 3 * 8 * documents * terms,
        f"{queries:,} queries with candidates: {rules.candidates:,} and feedback_documents: "
        f"{rules.feedback_documents:,}",
        "lower candidates or feedback_documents",
    )


def tokenizer_from(retrieval: RetrievalOptions) -> Tokenizer:
    """The tokenizer that the options ask for."""
    return make_tokenizer(retrieval.language, retrieval.stop_words, retrieval.ngrams)


def with_language(options: ReformulationOptions, texts: Sequence[str]) -> ReformulationOptions:
    """The options with what `auto` means for these documents as language and stop words.

    Where no spaces are written, and no n-grams are asked for, tokens are pairs of characters.
    """
    retrieval = options.retrieval
    if retrieval.language == AUTO:
        language, ngrams = detect_stemmer(texts)
        ngrams = retrieval.ngrams or ngrams
        retrieval = dataclasses.replace(retrieval, language=language, ngrams=ngrams)
    if retrieval.stop_words == AUTO:
        listed = retrieval.language if retrieval.language in stop_word_lists() else NONE
        retrieval = dataclasses.replace(retrieval, stop_words=listed)
    return dataclasses.replace(options, retrieval=retrieval)


def without_lists(options: ReformulationOptions) -> ReformulationOptions:
    """The options of a run with what `stop_words: auto` meant when only English had a list."""
    retrieval = options.retrieval
    if retrieval.stop_words == AUTO:
        known = ENGLISH if retrieval.language == ENGLISH else NONE
        retrieval = dataclasses.replace(retrieval, stop_words=known)
    return dataclasses.replace(options, retrieval=retrieval)


def load_index(
    path: Path | None, collection: Collection, retrieval: RetrievalOptions
) -> BM25Index | None:
    """The index in a file; None if there is no file, or one of other documents or options."""
    if path is None:
        return None
    parameters = (retrieval.k1, retrieval.b, EPSILON)
    try:
        return BM25Index.load(path, collection.texts, tokenizer_from(retrieval), parameters)
    except ValueError:
        return None


def encoder_from(retrieval: RetrievalOptions) -> Encoder:
    """The encoder that options name."""
    if retrieval.encoder == "own":
        raise ValueError(
            "the option encoder is own, and no encoder was given: give one in Python, as "
            "train(options, encoder=...) and Reformulator.load(run, encoder=...)."
        )
    return make_encoder(retrieval.encoder, retrieval.dimension)


def load_vectors(
    path: Path | None, identity: list[str], shape: tuple[int, int]
) -> DocumentVectors | None:
    """The embeddings in a file; None if there is none, or it is damaged or of others."""
    if path is None or not path.is_file():
        return None
    try:
        saved_identity, vectors = read_arrays(path, ("identity", "vectors"))
    except Exception:  # zipfile, zlib and numpy each have their own
        return None
    if saved_identity.tolist() != identity or vectors.shape != shape or vectors.dtype != np.float16:
        return None
    return DocumentVectors(vectors) if np.isfinite(vectors).all() else None
