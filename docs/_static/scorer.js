// Points of a page in the search, besides those of its words: what people use first comes first.
var Scorer = {
  score: (result) => {
    const [page, title, anchor, description, points] = result;
    const first = { "docs/guide": 60, "docs/estimator": 40, "docs/first-run": 30 };
    const last = /^(CHANGELOG|papers\/|docs\/decisions|docs\/claims|docs\/api\/)/.test(page) ? -20 : 0;
    return points + (first[page] || 0) + last;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
