package testlog

import (
	"encoding/xml"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"unicode/utf8"
)

// document is the elements of an XML document in the order of their opening tags; the first is the root.
type document []element

type element struct {
	tag        string // "{uri}local" in a namespace
	attributes map[string]string
	end        int // the index behind the last element inside this one
}

// attribute returns a value, or "None" for none.
func (e element) attribute(name string) string {
	if v, ok := e.attributes[name]; ok {
		return v
	}
	return "None"
}

// below yields the elements of that tag inside another, at any depth.
func (d document) below(i int, tag string) iter.Seq[int] {
	return func(yield func(int) bool) {
		for j := i + 1; j < d[i].end; j++ {
			if d[j].tag == tag && !yield(j) {
				return
			}
		}
	}
}

// readXML reads a document without a prologue. It refuses what is not well-formed or uses namespaces that were not
// declared (XML 1.0, Namespaces in XML 1.0). encoding/xml is too lenient for that: repeated attributes, attributes
// without space between them, a second root and more pass it.
func readXML(text string) (document, error) {
	p := xmlReader{text: text, scopes: []map[string]string{{"": "", "xml": xmlNamespace}}}
	for p.at < len(text) {
		if err := p.next(); err != nil {
			return nil, fmt.Errorf("XML at byte %d: %w: %w", p.at, err, ErrMalformed)
		}
	}
	if len(p.open) > 0 || len(p.doc) == 0 {
		return nil, fmt.Errorf("XML without an end: %w", ErrMalformed)
	}
	return p.doc, nil
}

const (
	xmlNamespace   = "http://www.w3.org/XML/1998/namespace"
	xmlnsNamespace = "http://www.w3.org/2000/xmlns/"
	xmlSpace       = " \t\r\n"
)

type xmlError string

func (e xmlError) Error() string { return string(e) }

type xmlReader struct {
	text   string
	at     int
	doc    document
	open   []openElement
	scopes []map[string]string // from prefix to namespace, the innermost last
}

type openElement struct {
	index  int
	name   string
	scopes int // how many scopes there were outside
}

// next reads one piece of markup or of text.
func (p *xmlReader) next() error {
	rest := p.text[p.at:]
	switch {
	case strings.HasPrefix(rest, "<!--"):
		comment, _, ok := strings.Cut(rest[4:], "--")
		if !ok || !strings.HasPrefix(rest[4+len(comment):], "-->") {
			return xmlError("bad comment")
		}
		p.at += len("<!---->") + len(comment)
		return xmlCharacters(comment)
	case strings.HasPrefix(rest, "<![CDATA[") && len(p.open) > 0:
		data, _, ok := strings.Cut(rest[9:], "]]>")
		if !ok {
			return xmlError("open section")
		}
		p.at += len("<![CDATA[]]>") + len(data)
		return xmlCharacters(data)
	case strings.HasPrefix(rest, "<?"):
		return p.instruction()
	case strings.HasPrefix(rest, "</"):
		return p.closingTag()
	case strings.HasPrefix(rest, "<"):
		return p.openingTag()
	}
	data, _, _ := strings.Cut(rest, "<")
	p.at += len(data)
	if len(p.open) == 0 {
		if strings.Trim(data, xmlSpace) != "" {
			return xmlError("text outside of the root")
		}
		return nil
	}
	if strings.Contains(data, "]]>") {
		return xmlError("stray end of a section")
	}
	_, err := xmlUnescape(data)
	return err
}

func (p *xmlReader) instruction() error {
	body, _, ok := strings.Cut(p.text[p.at+2:], "?>")
	if !ok {
		return xmlError("open instruction")
	}
	p.at += len("<??>") + len(body)
	target := body
	if i := strings.IndexAny(body, xmlSpace); i >= 0 {
		target = body[:i]
	}
	if !xmlName(target) || strings.EqualFold(target, "xml") {
		return xmlError("bad instruction")
	}
	return xmlCharacters(body)
}

func (p *xmlReader) closingTag() error {
	tag, _, ok := strings.Cut(p.text[p.at+2:], ">")
	if !ok || len(p.open) == 0 {
		return xmlError("stray closing tag")
	}
	last := p.open[len(p.open)-1]
	if strings.TrimRight(tag, xmlSpace) != last.name {
		return xmlError("mismatched closing tag")
	}
	p.at += len("</>") + len(tag)
	p.close()
	return nil
}

// close ends the innermost element.
func (p *xmlReader) close() {
	last := p.open[len(p.open)-1]
	p.doc[last.index].end = len(p.doc)
	p.open = p.open[:len(p.open)-1]
	p.scopes = p.scopes[:last.scopes]
}

func (p *xmlReader) openingTag() error {
	if len(p.open) == 0 && len(p.doc) > 0 {
		return xmlError("second root")
	}
	p.at++
	name := p.name()
	if name == "" {
		return xmlError("bad tag")
	}
	p.open = append(p.open, openElement{len(p.doc), name, len(p.scopes)})
	var attributes [][2]string
	for {
		spaced := p.space()
		if p.accept("/>") || p.accept(">") {
			break
		}
		attribute := p.name()
		p.space()
		if !spaced || attribute == "" || !p.accept("=") {
			return xmlError("bad tag")
		}
		p.space()
		value, err := p.value()
		if err != nil {
			return err
		}
		attributes = append(attributes, [2]string{attribute, value})
	}
	empty := p.text[p.at-2] == '/'
	e, err := p.element(name, attributes)
	if err != nil {
		return err
	}
	p.doc = append(p.doc, e)
	if empty {
		p.close()
	}
	return nil
}

// element resolves the namespaces of a tag.
func (p *xmlReader) element(name string, attributes [][2]string) (element, error) {
	scope, err := declarations(attributes)
	if err != nil {
		return element{}, err
	}
	if scope != nil {
		p.scopes = append(p.scopes, scope)
	}
	e := element{attributes: map[string]string{}}
	if e.tag, err = p.expand(name, true); err != nil {
		return element{}, err
	}
	seen := map[string]bool{}
	for _, a := range attributes {
		if seen[a[0]] {
			return element{}, xmlError("repeated attribute")
		}
		seen[a[0]] = true
		if a[0] == "xmlns" || strings.HasPrefix(a[0], "xmlns:") {
			continue
		}
		key, err := p.expand(a[0], false)
		if err != nil {
			return element{}, err
		}
		if _, repeated := e.attributes[key]; repeated {
			return element{}, xmlError("repeated attribute")
		}
		e.attributes[key] = a[1]
	}
	return e, nil
}

// declarations returns the namespaces that a tag declares, nil for none.
func declarations(attributes [][2]string) (map[string]string, error) {
	var scope map[string]string
	for _, a := range attributes {
		prefix, declares := strings.CutPrefix(a[0], "xmlns:")
		if !declares && a[0] != "xmlns" {
			continue
		}
		if !declares {
			prefix = ""
		}
		switch {
		case prefix != "" && a[1] == "",
			prefix == "xmlns",
			(prefix == "xml") != (a[1] == xmlNamespace),
			a[1] == xmlnsNamespace,
			strings.Contains(a[1], "}"):
			return nil, xmlError("bad namespace")
		}
		if scope == nil {
			scope = map[string]string{}
		}
		scope[prefix] = a[1]
	}
	return scope, nil
}

// expand puts the namespace in front of a name. A name without a prefix has the default one, if it is an element's.
func (p *xmlReader) expand(name string, isElement bool) (string, error) {
	prefix, local, prefixed := strings.Cut(name, ":")
	if !prefixed {
		prefix, local = "", name
		if !isElement {
			return name, nil
		}
	}
	for i := len(p.scopes) - 1; i >= 0; i-- {
		if uri, ok := p.scopes[i][prefix]; ok {
			if uri == "" {
				return local, nil
			}
			return "{" + uri + "}" + local, nil
		}
	}
	return "", xmlError("undeclared namespace")
}

func (p *xmlReader) accept(token string) bool {
	ok := strings.HasPrefix(p.text[p.at:], token)
	if ok {
		p.at += len(token)
	}
	return ok
}

func (p *xmlReader) space() bool {
	before := p.at
	p.at = len(p.text) - len(strings.TrimLeft(p.text[p.at:], xmlSpace))
	return p.at > before
}

// name reads a name with at most one prefix; it returns nothing for none.
func (p *xmlReader) name() string {
	rest := p.text[p.at:]
	if i := strings.IndexAny(rest, xmlSpace+"=/><\"'&"); i >= 0 {
		rest = rest[:i]
	}
	prefix, local, prefixed := strings.Cut(rest, ":")
	if !xmlName(prefix) || prefixed && !xmlName(local) {
		return ""
	}
	p.at += len(rest)
	return rest
}

// xmlName reports whether s is a name without a colon. The tables behind encoding/xml know which letters are.
func xmlName(s string) bool {
	if s == "" || strings.ContainsAny(s, xmlSpace+"!?:=/><\"'&[]") {
		return false
	}
	_, err := xml.NewDecoder(strings.NewReader("<" + s + "/>")).RawToken()
	return err == nil
}

// value reads an attribute's value with its quotes.
func (p *xmlReader) value() (string, error) {
	for _, quote := range []string{`"`, "'"} {
		if !p.accept(quote) {
			continue
		}
		raw, _, ok := strings.Cut(p.text[p.at:], quote)
		if !ok || strings.Contains(raw, "<") {
			return "", xmlError("bad value")
		}
		p.at += len(raw) + 1
		return xmlUnescape(strings.NewReplacer("\t", " ", "\r", " ", "\n", " ").Replace(raw))
	}
	return "", xmlError("value without quotes")
}

var xmlEntities = map[string]string{"lt": "<", "gt": ">", "amp": "&", "quot": `"`, "apos": "'"}

// xmlUnescape replaces references.
func xmlUnescape(s string) (string, error) {
	if err := xmlCharacters(s); err != nil {
		return "", err
	}
	var b strings.Builder
	for {
		before, after, more := strings.Cut(s, "&")
		b.WriteString(before)
		if !more {
			return b.String(), nil
		}
		reference, rest, ok := strings.Cut(after, ";")
		if !ok {
			return "", xmlError("open reference")
		}
		text, ok := xmlEntities[reference]
		if number, numeric := strings.CutPrefix(reference, "#"); numeric {
			text, ok = xmlCharacter(number)
		}
		if !ok {
			return "", xmlError("bad reference")
		}
		b.WriteString(text)
		s = rest
	}
}

// xmlCharacter returns the character of a numeric reference.
func xmlCharacter(number string) (string, bool) {
	base := 10
	if hex, ok := strings.CutPrefix(number, "x"); ok {
		number, base = hex, 16
	}
	n, err := strconv.ParseUint(number, base, 21)
	if err != nil || !utf8.ValidRune(rune(n)) || xmlCharacters(string(rune(n))) != nil {
		return "", false
	}
	return string(rune(n)), true
}

// xmlCharacters refuses what no document may hold.
func xmlCharacters(s string) error {
	for _, r := range s {
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return xmlError("forbidden character")
		}
	}
	return nil
}
