// Package plot draws lines as SVG, and holds what else the pages that commands write share: each is one file without a
// script, readable in light and dark.
package plot
