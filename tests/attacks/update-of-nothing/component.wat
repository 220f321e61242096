;; Updates the weights for ever, although nothing was learned.
(import "tunebox:method/learn@0.2.0" "update" (func $update (param i32)))
(func $step (param i32) (result i32)
  (call $update (i32.const 64))
  (call $pass-on))
