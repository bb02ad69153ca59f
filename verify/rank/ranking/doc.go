// Package ranking ranks the candidates of a whole run: it reads them ([Read]), has them judged and tested as far as
// that is not on record already ([Ranking.Run]), chooses one for each task, and writes what came of it ([Report]): the
// choice as preds.json, and Best@k beside Pass@k as JSON and as a page.
//
// Everything that costs something is kept in the ranking's directory as soon as it is known, so that a ranking that was
// killed goes on where it was, and a second one costs nothing.
package ranking
