//go:build !race

package ebbtide_test

const isRace = false
