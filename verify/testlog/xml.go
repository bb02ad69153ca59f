package testlog

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
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
	tag        xml.Name
	attributes map[xml.Name]string
	end        int // the index after the last element inside this one
}

// attribute returns the value of an attribute without a namespace, or "None" if it is missing.
func (e element) attribute(name string) string {
	if v, ok := e.attributes[xml.Name{Local: name}]; ok {
		return v
	}
	return "None"
}

// below yields the elements with a tag inside another element, at any depth.
func (d document) below(i int, tag string) iter.Seq[int] {
	return func(yield func(int) bool) {
		for j := i + 1; j < d[i].end; j++ {
			if d[j].tag == (xml.Name{Local: tag}) && !yield(j) {
				return
			}
		}
	}
}

// lineBreaks become spaces in the value of an attribute (XML 1.0, section 3.3.3), which encoding/xml leaves to others.
var lineBreaks = strings.NewReplacer("\t", " ", "\r", " ", "\n", " ")

// readXML reads a document without a prologue. It refuses what encoding/xml does, and what a log can contain of the
// rest: an attribute given twice, and the prologue of a second report.
func readXML(text string) (document, error) {
	d := xml.NewDecoder(strings.NewReader(text))
	var doc document
	var open []int
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) && len(doc) > 0 {
			return doc, nil
		}
		switch token := token.(type) {
		case xml.StartElement:
			e := element{tag: token.Name, attributes: map[xml.Name]string{}}
			for _, a := range token.Attr {
				if _, repeated := e.attributes[a.Name]; repeated {
					err = errors.New("repeated attribute")
				}
				e.attributes[a.Name] = lineBreaks.Replace(a.Value)
			}
			open, doc = append(open, len(doc)), append(doc, e)
		case xml.ProcInst:
			if token.Target == "xml" {
				err = errors.New("prologue inside the document")
			}
		case xml.EndElement:
			doc[open[len(open)-1]].end = len(doc)
			open = open[:len(open)-1]
		}
		if err != nil {
			return nil, fmt.Errorf("XML at byte %d: %w: %w", d.InputOffset(), err, ErrMalformed)
		}
	}
}
