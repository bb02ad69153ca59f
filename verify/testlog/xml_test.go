package testlog

import (
	"fmt"
	"testing"
)

func TestReadXMLRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`<a>`, `<a></b>`, `<a/><b/>`, `<a/>x`, `<a b="1" b="2"/>`, `<a b="1"c="2"/>`, `<a b=1/>`, `<a b="<"/>`, `<a b/>`,
		`<a / >`,
		`<a>&nbsp;</a>`, `<a>&#0;</a>`, `<a>&#xD800;</a>`, `<a>&#x110000;</a>`, `<a>&</a>`, `<a>]]></a>`,
		`<a><!-- -- --></a>`,
		`<a><!-- --->`, `<a><?xml?></a>`, `<a><??></a>`, `<a><!DOCTYPE b></a>`, "<a>\x01</a>", "<a>\uffff</a>", `<1/>`,
		`<a:b/>`,
		`<a b:c="1"/>`, `<a xmlns:b=""/>`, `<a xmlns:xmlns="u"/>`, `<a xmlns:b="u" xmlns:c="u" b:x="1" c:x="2"/>`,
		`<a:b:c xmlns:a="u"/>`,
		`<é¡/>`, `<a></ a>`, `</a>`, `<![CDATA[]]>`, ``,
	} {
		if doc, err := readXML(text); err == nil {
			t.Errorf("readXML(%q) = %v, want an error", text, doc)
		}
	}
}

func TestReadXML(t *testing.T) {
	t.Parallel()
	doc, err := readXML("<a n='1&#10;&lt;\n\"' ><!-- c --><?p x?><b xmlns='u'><c/></b><![CDATA[<]]>&gt;<c xmlns:p=\"v\" p:n='2'/></a >\n<!-- end -->")
	if err != nil {
		t.Fatal(err)
	}
	var tags []string
	for _, e := range doc {
		tags = append(tags, e.tag)
	}
	if want := "[a {u}b {u}c c]"; fmt.Sprint(tags) != want {
		t.Errorf("elements are %v, want %s", tags, want)
	}
	if got := doc[0].attribute("n"); got != "1\n< \"" {
		t.Errorf("n is %q", got)
	}
	n := 0
	for range doc.below(0, "c") {
		n++
	}
	if n != 1 || doc[3].attribute("n") != "None" || doc[3].attribute("{v}n") != "2" {
		t.Errorf("%d elements c without a namespace, with attributes %v", n, doc[3].attributes)
	}
}
