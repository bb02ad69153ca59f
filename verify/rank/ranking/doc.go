// Package ranking ranks the candidates of a whole run: it reads them ([Read]), has them judged and tested unless that
// is on record already ([Ranking.Run]), chooses one for each task, and writes the result ([Report]): the choice as
// preds.json, and Best@k and Pass@k as JSON and as a page.
//
// Everything expensive is stored in the ranking's directory as soon as it is known, so that a killed ranking continues
// where it stopped, and a second one costs nothing.
package ranking
