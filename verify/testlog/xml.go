package testlog

import (
	"encoding/xml"
	"fmt"
	"iter"
	"maps"
	"strconv"
	"strings"
	"unicode/utf8"
)

// doctest reads the XML report of the C++ framework doctest. A subcase passes if all expressions in it do.
func doctest(log string, _ Task) (*Results, error) {
	var r Results
	_, report, found := strings.Cut(log, "<doctest")
	if !found {
		return &r, nil
	}
	body, _, closed := strings.Cut("<doctest"+report, "</doctest>")
	if !closed {
		return nil, fmt.Errorf("the report has no end: %w", ErrMalformed)
	}
	doc, err := readXML(body + "</doctest>")
	if err != nil {
		return nil, err
	}
	for testCase := range doc.below(0, "TestCase") {
		for subCase := range doc.below(testCase, "SubCase") {
			status := Passed
			for expression := range doc.below(subCase, "Expression") {
				if doc[expression].attribute("success") != "true" {
					status = Failed
				}
			}
			r.set(doc[testCase].attribute("name")+" > "+doc[subCase].attribute("name"), status)
		}
	}
	return &r, nil
}

// document is the elements of an XML document in the order of their opening tags, starting with the root.
type document []element

type element struct {
	tag        string // "{uri}local" if in a namespace
	attributes map[string]string
	end        int // the index after the last element inside this one
}

// attribute returns an attribute's value, or "None" if it is missing.
func (e element) attribute(name string) string {
	if v, ok := e.attributes[name]; ok {
		return v
	}
	return "None"
}

// below yields the elements with a tag inside another element, at any depth.
func (d document) below(i int, tag string) iter.Seq[int] {
	return func(yield func(int) bool) {
		for j := i + 1; j < d[i].end; j++ {
			if d[j].tag == tag && !yield(j) {
				return
			}
		}
	}
}

// readXML parses a document without a prologue. It rejects what is not well-formed or uses undeclared namespaces
// (XML 1.0, Namespaces in XML 1.0). encoding/xml is too lenient for this: it accepts repeated attributes,
// attributes without space between them, a second root, and more.
func readXML(text string) (document, error) {
	p := xmlReader{text: text}
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

// xmlTag matches an opening tag: its name, its attributes, and a slash if the element is empty. expand checks the
// names.
var (
	xmlTag = expression(`^<([^ \t\r\n=/><"'&]+)` +
		`((?:[ \t\r\n]+[^ \t\r\n=/><"'&]+[ \t\r\n]*=[ \t\r\n]*(?:"[^<"]*"|'[^<']*'))*)[ \t\r\n]*(/?)>`)
	xmlAttribute = expression(`([^ \t\r\n=/><"'&]+)[ \t\r\n]*=[ \t\r\n]*(?:"([^"]*)"|'([^']*)')`)
)

type xmlError string

func (e xmlError) Error() string { return string(e) }

type xmlReader struct {
	text string
	at   int
	doc  document
	open []openElement
}

type openElement struct {
	index int
	name  string
	scope map[string]string // namespace by prefix
}

// next reads one piece of markup or text.
func (p *xmlReader) next() error {
	rest := p.text[p.at:]
	switch {
	case strings.HasPrefix(rest, "<!--"):
		comment, err := p.section("<!--", "-->")
		if strings.Contains(comment, "--") || strings.HasSuffix(comment, "-") {
			return xmlError("bad comment")
		}
		return err
	case strings.HasPrefix(rest, "<![CDATA[") && len(p.open) > 0:
		_, err := p.section("<![CDATA[", "]]>")
		return err
	case strings.HasPrefix(rest, "<?"):
		body, err := p.section("<?", "?>")
		target := body
		if i := strings.IndexAny(body, xmlSpace); i >= 0 {
			target = body[:i]
		}
		if err == nil && (!xmlName(target) || strings.EqualFold(target, "xml")) {
			err = xmlError("bad instruction")
		}
		return err
	case strings.HasPrefix(rest, "</"):
		tag, _, ok := strings.Cut(rest[2:], ">")
		if !ok || len(p.open) == 0 {
			return xmlError("stray closing tag")
		}
		if strings.TrimRight(tag, xmlSpace) != p.open[len(p.open)-1].name {
			return xmlError("mismatched closing tag")
		}
		p.at += len("</>") + len(tag)
		p.close()
		return nil
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

// section reads what is between two delimiters, of which the first comes next.
func (p *xmlReader) section(opening, closing string) (string, error) {
	body, _, ok := strings.Cut(p.text[p.at+len(opening):], closing)
	if !ok {
		return "", xmlError(opening + " without an end")
	}
	p.at += len(opening) + len(body) + len(closing)
	return body, xmlCharacters(body)
}

// close ends the innermost element.
func (p *xmlReader) close() {
	last := len(p.open) - 1
	p.doc[p.open[last].index].end = len(p.doc)
	p.open = p.open[:last]
}

func (p *xmlReader) openingTag() error {
	scope := map[string]string{"": "", "xml": xmlNamespace}
	if len(p.open) > 0 {
		scope = p.open[len(p.open)-1].scope
	} else if len(p.doc) > 0 {
		return xmlError("second root")
	}
	m := xmlTag().FindStringSubmatch(p.text[p.at:])
	if m == nil {
		return xmlError("bad tag")
	}
	p.at += len(m[0])
	seen, values := map[string]bool{}, map[string]string{}
	for _, a := range xmlAttribute().FindAllStringSubmatch(m[2], -1) {
		value, err := xmlUnescape(strings.NewReplacer("\t", " ", "\r", " ", "\n", " ").Replace(a[2] + a[3]))
		if err != nil {
			return err
		}
		if seen[a[1]] {
			return xmlError("repeated attribute")
		}
		seen[a[1]] = true
		if a[1] != "xmlns" && !strings.HasPrefix(a[1], "xmlns:") {
			values[a[1]] = value
		} else if scope, err = declare(scope, a[1], value); err != nil {
			return err
		}
	}
	e := element{attributes: map[string]string{}}
	var err error
	if e.tag, err = expand(m[1], scope, true); err != nil {
		return err
	}
	for name, value := range values {
		key, err := expand(name, scope, false)
		if err != nil {
			return err
		}
		e.attributes[key] = value
	}
	if len(e.attributes) < len(values) {
		return xmlError("repeated attribute")
	}
	p.open = append(p.open, openElement{len(p.doc), m[1], scope})
	p.doc = append(p.doc, e)
	if m[3] == "/" {
		p.close()
	}
	return nil
}

// declare returns the scope extended by the namespace that an attribute named xmlns or xmlns:prefix declares.
func declare(scope map[string]string, name, uri string) (map[string]string, error) {
	prefix, prefixed := strings.CutPrefix(name, "xmlns:")
	if !prefixed {
		prefix = ""
	}
	switch {
	case prefixed && (uri == "" || !xmlName(prefix)), prefix == "xmlns", (prefix == "xml") != (uri == xmlNamespace),
		uri == xmlnsNamespace, strings.Contains(uri, "}"):
		return nil, xmlError("bad namespace")
	}
	scope = maps.Clone(scope)
	scope[prefix] = uri
	return scope, nil
}

// expand adds the namespace to a name. The name of an element without a prefix is in the default namespace.
func expand(name string, scope map[string]string, isElement bool) (string, error) {
	prefix, local, prefixed := strings.Cut(name, ":")
	if !prefixed {
		prefix, local = "", name
	}
	uri, known := scope[prefix]
	switch {
	case !xmlName(local) || name[0] == ':':
		return "", xmlError("bad name")
	case !known:
		return "", xmlError("undeclared namespace")
	case uri == "" || !prefixed && !isElement:
		return local, nil
	}
	return "{" + uri + "}" + local, nil
}

// xmlName reports whether s is a valid name without a colon, according to encoding/xml.
func xmlName(s string) bool {
	if s == "" || strings.ContainsAny(s, xmlSpace+"!?:=/><\"'&[]") {
		return false
	}
	_, err := xml.NewDecoder(strings.NewReader("<" + s + "/>")).RawToken()
	return err == nil
}

var xmlEntities = map[string]string{"lt": "<", "gt": ">", "amp": "&", "quot": `"`, "apos": "'"}

// xmlUnescape replaces character and entity references.
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

// xmlCharacters returns an error for characters that are not allowed in XML.
func xmlCharacters(s string) error {
	for _, r := range s {
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return xmlError("forbidden character")
		}
	}
	return nil
}
