//go:build !ebbtide_static

package ebbtide

// #cgo pkg-config: ebbtide
import "C"
