package docker

import (
	"strconv"
	"time"
)

// Labels of containers, volumes and images; see the package documentation.
const (
	labelOwner    = "deepswe.owner"    // owner.String/nonce
	labelHost     = "deepswe.host"     // the owner's host name, for people
	labelKind     = "deepswe.kind"     // one of the kinds below
	labelRun      = "deepswe.run"      // Spec.Run
	labelRollout  = "deepswe.rollout"  // Spec.Rollout
	labelCreated  = "deepswe.created"  // Unix seconds
	labelPrepared = "deepswe.prepared" // on prepared images: the hash of what was prepared
	labelBuilt    = "deepswe.built"    // on built images: the hash of the folder
	labelUser     = "deepswe.user"     // on prepared images: the User of the original image
)

// The purposes of our containers.
const (
	kindSandbox  = "sandbox"  // runs an agent's commands
	kindPrepare  = "prepare"  // becomes a prepared image
	kindOriginal = "original" // never started: for reading original files
	kindLease    = "lease"    // never started: shows that its owner is alive, and keeps the guest's volume in use
	kindFill     = "fill"     // never started: for writing to the guest's volume
)

// labels returns the labels that all containers and volumes of this provider have.
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
