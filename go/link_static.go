//go:build ebbtide_static

package ebbtide

// #cgo pkg-config: ebbtide-static
import "C"
