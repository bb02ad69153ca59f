package pages

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// fields is what a filter and an order go by.
type fields interface {
	field(name string) (text string, number float64, numeric bool)
}

// term is a word of a filter: a text that a field contains, or a limit of a number. A field's name is empty for a word
// alone.
type term struct {
	not   bool
	name  string
	op    string // "", ">" or "<"
	value string
}

// parseFilter reads a filter: words, NAME:TEXT, NAME:>NUMBER and NAME:<NUMBER, each with a - before it for the
// opposite. An attempt must agree with all of them.
func parseFilter(text string) []term {
	var terms []term
	for _, word := range strings.Fields(text) {
		t := term{}
		word, t.not = strings.CutPrefix(word, "-")
		if name, value, ok := strings.Cut(word, ":"); ok {
			t.name, word = strings.ToLower(name), value
		}
		for _, op := range []string{">", "<"} {
			if value, ok := strings.CutPrefix(word, op); ok && t.name != "" {
				t.op, word = op, value
			}
		}
		if t.value = strings.ToLower(word); t.value != "" {
			terms = append(terms, t)
		}
	}
	return terms
}

// matches reports whether a row agrees with all terms.
func matches(terms []term, r fields) bool {
	for _, t := range terms {
		if t.match(r) == t.not {
			return false
		}
	}
	return true
}

func (t term) match(r fields) bool {
	text, number, numeric := r.field(t.name)
	if !numeric {
		text = strings.ToLower(text)
		if t.name == "is" {
			return text == t.value
		}
		if t.value == "yes" || t.value == "no" {
			return (text != "") == (t.value == "yes")
		}
		return strings.Contains(text, t.value) || strings.Contains(text, strings.ReplaceAll(t.value, "_", " "))
	}
	value, err := strconv.ParseFloat(t.value, 64)
	if err != nil {
		return false
	}
	switch t.op {
	case ">":
		return number > value
	case "<":
		return number < value
	}
	return number == value
}

// query is what a table's address says: a filter, an order, and a page.
type query struct {
	Filter, Order string // the order begins with - for the largest first
	Page          int
	rest          url.Values
}

func queryOf(v url.Values) query {
	q := query{Filter: v.Get("q"), Order: v.Get("sort"), rest: v}
	q.Page, _ = strconv.Atoi(v.Get("page"))
	return q
}

// with returns the address of the same table with another value of a key, on its first page; an empty value drops it.
func (q query) with(pairs ...string) string {
	v := url.Values{}
	for name, values := range q.rest {
		v[name] = values
	}
	v.Del("page")
	for i := 0; i+1 < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
		if pairs[i+1] == "" {
			v.Del(pairs[i])
		}
	}
	return "?" + v.Encode()
}

// perPage is the number of rows on a page of a table.
const perPage = 250

// selectRows returns the rows that agree with the query, in its order, those of its page, and how many there are on
// all pages.
func selectRows[T fields](q query, rows []T) (page []T, all int) {
	terms := parseFilter(q.Filter)
	var left []T
	for _, r := range rows {
		if matches(terms, r) {
			left = append(left, r)
		}
	}
	if name, down := strings.CutPrefix(q.Order, "-"); name != "" {
		slices.SortStableFunc(left, func(a, b T) int {
			at, an, _ := a.field(name)
			bt, bn, _ := b.field(name)
			c := cmp.Or(cmp.Compare(an, bn), strings.Compare(at, bt))
			if down {
				return -c
			}
			return c
		})
	}
	from := min(max(0, q.Page-1)*perPage, len(left))
	return left[from:min(from+perPage, len(left))], len(left)
}

// column is the head of a table's column; its link orders the table by it.
type column struct {
	Title, Link, Mark string
	Number            bool
}

// columns returns heads of columns, given as NAME:Title; a # before the title is for numbers, which begin with the
// largest.
func (q query) columns(specs ...string) []column {
	var all []column
	for _, s := range specs {
		name, title, _ := strings.Cut(s, ":")
		c := column{}
		c.Title, c.Number = strings.CutPrefix(title, "#")
		up, down := name, "-"+name
		first := up
		if c.Number {
			first = down
		}
		switch q.Order {
		case up:
			c.Mark, first = "↑", down
		case down:
			c.Mark, first = "↓", up
		}
		if name != "" {
			c.Link = q.with("sort", first)
		}
		all = append(all, c)
	}
	return all
}

// pager is the links to the pages before and after.
type pager struct {
	From, To, All int
	Before, After string
}

func (q query) pager(shown, all int) pager {
	at := max(1, q.Page)
	p := pager{From: (at-1)*perPage + min(1, shown), To: (at-1)*perPage + shown, All: all}
	if at > 1 {
		p.Before = q.with("page", strconv.Itoa(at-1))
	}
	if at*perPage < all {
		p.After = q.with("page", strconv.Itoa(at+1))
	}
	return p
}
