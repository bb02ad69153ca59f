// Package hub fetches published files: the datasets of a hub that speaks the Hugging Face API, by name and at a
// pinned revision, and single files by address and digest. It also pushes a model's folder to such a hub. It has no
// default hub: the caller names one.
package hub

import (
	"fmt"
	"net/url"
	"strings"
)

// Address checks the address of a hub.
func Address(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return "", fmt.Errorf("--hub %s is not an address such as https://hub.example", address)
	}
	return strings.TrimRight(address, "/"), nil
}
