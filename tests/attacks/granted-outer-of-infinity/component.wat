;; Adds a product that no number holds.
(data (i32.const 256) "\03\00\00\00\02\00\00\00")
;; Ones of the shape [3], or [2] from 260 on.
(func $vector (param $shape i32) (result i32)
  (call $tensor/ones (local.get $shape) (i32.const 1) (i32.const 5) (i32.const 64))
  (call $handle))
(func $step (param i32) (result i32)
  (call $weights/add-outer (i32.const 7) (i32.const 0) (call $vector (i32.const 256)) (call $vector (i32.const 256)) (f32.const inf) (i32.const 64))
  (call $pass-on))
