;; Ends in the middle of itself.
(func $step (param i32) (result i32) (call $done))
