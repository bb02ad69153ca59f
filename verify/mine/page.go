package mine

import (
	_ "embed"
	"html/template"
	"io"

	"deepswe/verify/plot"
)

//go:embed page.html
var pageHTML string

// page writes the report as a page that needs no other file.
func (r Report) page(w io.Writer) error {
	t, err := template.New("report").Parse(pageHTML)
	if err != nil {
		return err
	}
	style := template.CSS(plot.Style) //nolint:gosec // it is our own
	return t.Execute(w, struct {
		Report
		Style template.CSS
	}{r, style})
}
