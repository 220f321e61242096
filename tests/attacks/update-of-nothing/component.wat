;; Updates the weights for ever, although nothing was learned.
(func $step (param i32) (result i32)
  (call $learn/update (i32.const 64))
  (call $pass-on))
