package docker

import (
	"strconv"
	"time"
)

// The labels of containers, volumes and images; the package's documentation describes them.
const (
	labelOwner    = "deepswe.owner"    // owner.String/nonce
	labelHost     = "deepswe.host"     // the owner's host name, for people
	labelKind     = "deepswe.kind"     // kindSandbox and its siblings
	labelRun      = "deepswe.run"      // Spec.Run
	labelRollout  = "deepswe.rollout"  // Spec.Rollout
	labelCreated  = "deepswe.created"  // Unix seconds
	labelPrepared = "deepswe.prepared" // on derived images: the hash of what was prepared
	labelBuilt    = "deepswe.built"    // on built images: the hash of what they were built from
	labelUser     = "deepswe.user"     // on derived images: the User of the image they were made from
)

// What our containers are for.
const (
	kindSandbox  = "sandbox"  // a rollout works in it
	kindPrepare  = "prepare"  // becomes a derived image
	kindOriginal = "original" // never started: original files are read from it
	kindLease    = "lease"    // never started: shows that its owner is alive, and keeps the guest's volume in use
	kindFill     = "fill"     // never started: the guest's volume is filled through it
)

// labels are what every container and volume of this provider carries.
func (p *Provider) labels(kind, run, rollout string) map[string]string {
	return map[string]string{
		labelOwner:   p.owner,
		labelHost:    p.hostname,
		labelKind:    kind,
		labelRun:     run,
		labelRollout: rollout,
		labelCreated: strconv.FormatInt(time.Now().Unix(), 10),
	}
}
