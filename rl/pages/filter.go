package pages

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// fields are the values by which a table is filtered and sorted: texts, and numbers as int or float64.
type fields map[string]any

// number returns a field that is a number.
func (f fields) number(name string) (v float64, ok bool) {
	switch n := f[name].(type) {
	case int:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

// text returns a field that is a text, in lower case.
func (f fields) text(name string) string {
	text, _ := f[name].(string)
	return strings.ToLower(text)
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

// matches reports whether fields agree with all terms.
func matches(terms []term, f fields) bool {
	return !slices.ContainsFunc(terms, func(t term) bool { return t.match(f) == t.not })
}

func (t term) match(f fields) bool {
	number, numeric := f.number(t.name)
	if !numeric {
		text := f.text(t.name)
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
	maps.Copy(v, q.rest)
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

// selectRows returns the rows on the query's page, filtered and sorted as it says, and how many rows all pages have.
func selectRows[T interface{ fields() fields }](q query, rows []T) (page []T, all int) {
	type keyed struct {
		row    T
		text   string
		number float64
	}
	terms := parseFilter(q.Filter)
	name, down := strings.CutPrefix(q.Order, "-")
	var left []keyed
	for _, r := range rows {
		if f := r.fields(); matches(terms, f) {
			k := keyed{row: r, text: f.text(name)}
			k.number, _ = f.number(name)
			left = append(left, k)
		}
	}
	if name != "" {
		slices.SortStableFunc(left, func(a, b keyed) int {
			if down {
				a, b = b, a
			}
			return cmp.Or(cmp.Compare(a.number, b.number), strings.Compare(a.text, b.text))
		})
	}
	from := min(max(0, q.Page-1)*perPage, len(left))
	for _, k := range left[from:min(from+perPage, len(left))] {
		page = append(page, k.row)
	}
	return page, len(left)
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
