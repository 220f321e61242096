;; Takes a divergence between two distributions that is no mixture of them.
(import "tunebox:method/model@0.2.0" "[constructor]taps" (func $taps (result i32)))
(import "tunebox:method/model@0.2.0" "policy" (func $policy (result i32)))
(import "tunebox:method/model@0.2.0" "[method]taps.divergence" (func $divergence (param i32 i32 f32 i32)))
(func $step (param i32) (result i32)
  (call $divergence (call $taps) (call $policy) (f32.const nan) (i32.const 64))
  (call $pass-on))
