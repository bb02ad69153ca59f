// Package plot draws lines as SVG, for the pages that commands write: each is one file without a script, readable in
// light and dark.
package plot
