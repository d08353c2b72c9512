// Sphinx's own scores; of equal ones, an entry of the glossary comes after the page that explains.
var Scorer = {
  score: ([page, , , , score]) => score - (page === "glossary" ? 1 : 0),
  objNameMatch: 11, objPartialMatch: 6, objPrio: {0: 15, 1: 5, 2: -5}, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
