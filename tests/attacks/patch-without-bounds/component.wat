;; Sets a component to infinity.
;; 256: a shape [3]; 272: layers 0 0 1 2 4.
(data (i32.const 256) "\03\00\00\00")
(data (i32.const 272) "\00\00\00\00\00\00\00\00\01\00\00\00\02\00\00\00\04\00\00\00")
(func $vector (result i32)
  (call $tensor/ones (i32.const 256) (i32.const 1) (i32.const 5) (i32.const 64))
  (call $handle))
(func $step (param i32) (result i32)
  (local $vector i32) (local $other i32)
  (local.set $vector (call $vector))
  (call $patch/project (i32.const 272) (i32.const 1) (i32.const 3) (local.get $vector) (f32.const inf) (i32.const 64))
  (call $pass-on))
