//go:build race

package ebbtide_test

// isRace is whether the race detector, which allocates, is on.
const isRace = true
