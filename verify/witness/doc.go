// Package witness watches test runners from inside their processes: programs for Python and node that an interpreter
// loads before anything else, and that leave a record of how its process ended and of what had become of the functions
// that tests are judged by.
//
// The record is a second net. What runs in the process of a runner can forge it, as it can forge the runner's own
// words. A secret in the record would not change that: the process that is to write the secret is the one that has to
// be kept from it. So there is none.
package witness
